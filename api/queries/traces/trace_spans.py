"""The spans of one request, as applications reported them."""

from dataclasses import dataclass

from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions

MAX_SPANS = 10_000
_NO_PARENT = "0" * 16

_SQL = """
SELECT lower(hex(span_id)) AS id, lower(hex(argMax(parent_span_id, end_time))) AS parent,
    argMax(name, end_time) AS name, toString(argMax(service, end_time)) AS service,
    toUnixTimestamp64Nano(min(start_time)) AS start_unix_nano, toUnixTimestamp64Nano(max(end_time)) AS end_unix_nano,
    if(max(status = 'error'), 'error', toString(max(status))) AS said, count() OVER () AS spans
FROM spans {where} GROUP BY span_id ORDER BY parent != '{no_parent}', start_unix_nano, id LIMIT {limit}
"""


@dataclass(frozen=True)
class StoredSpan:
    parent_span_id: str
    name: str
    service: str
    start_unix_nano: int
    end_unix_nano: int
    status: str  # ok, error, or "": not set


@dataclass(frozen=True)
class ReportedSpans:
    spans: dict[str, StoredSpan]
    """By span ID. The root comes first, if it is stored."""
    more: int
    """How many are left out."""

    @property
    def operation(self) -> str:
        """The name of the root span, or of the first span if the root is not stored."""
        return next((span.name for span in self.spans.values()), "")

    @property
    def service(self) -> str:
        """The service of the same span."""
        return next((span.service for span in self.spans.values()), "")


def read_spans(database: Database, trace_id: str) -> ReportedSpans:
    """Raises ApiError."""
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    answer = database.table(
        _SQL.format(where=conditions.where, no_parent=_NO_PARENT, limit=MAX_SPANS), conditions.parameters
    )
    columns = (
        *(texts(answer[name]) for name in ("parent", "name", "service")),
        *(answer[name].to_pylist() for name in ("start_unix_nano", "end_unix_nano")),
        texts(answer["said"]),
    )
    spans = {span_id: StoredSpan(*row) for span_id, *row in zip(texts(answer["id"]), *columns, strict=True)}
    return ReportedSpans(spans, answer["spans"][0].as_py() - len(spans) if spans else 0)
