"""The requests that may have used the most CPU, where there are too many to sum up all of them.

`recent_operations` has the heaviest ones of each minute of an operation, or of a service by their samples, block by
block as they were stored. What they used there is added up here, and the sums choose of which requests the rows are
read. So a request is missed only if it was never among the heaviest of a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from api.queries.database import Database, texts
from api.queries.operations.confidence import is_cpu
from api.queries.operations.recent import OF_REQUESTS, are_many, recent_conditions
from api.queries.selection.conditions import matching
from api.queries.selection.sample_operations import OPERATION, add_request_matchers, split_matchers
from api.queries.selection.selection import Selection
from icestream.clickhouse.recent_operations import HEAVIEST, packed_cpu, packed_trace

MORE_CANDIDATES = 1000
"""Pages after the first one, and a first one that fewer do not fill, are of so many candidates at least. Each costs a
millisecond: its rows are read by ID."""
_PIECES = 10
"""The query reads so many pieces for each candidate, the largest ones, and adds up what each request used in them."""
_SQL = f"""
SELECT kind, twentieth, lower(hex(trace)) AS id, sum(cpu) AS used, count() AS pieces, min(cpu) AS least
FROM
(
    SELECT kind, twentieth, {packed_trace("packed")} AS trace, {packed_cpu("packed")} AS cpu
    FROM
    (
        SELECT kind, maxIf({packed_cpu(f"best[{HEAVIEST}]")}, length(best) = {HEAVIEST}) AS twentieth,
            groupArraySortedArray({{most}})(best) AS largest
        FROM
        (
            SELECT toString(profile_type) AS kind, finalizeAggregation(heaviest) AS best
            FROM recent_operations {{where}}
        )
        GROUP BY kind
    )
    ARRAY JOIN largest AS packed
)
GROUP BY kind, twentieth, trace
ORDER BY used DESC, trace DESC"""


@dataclass(frozen=True)
class Candidates:
    trace_ids: list[str]
    complete_above_ns: int
    """Other requests did not use more than this in a minute of one operation, unless they were stored in pieces."""


@dataclass(frozen=True)
class _OfKind:
    """The best candidates by thread CPU, or by samples of one profile type."""

    used_ns: dict[str, int]
    """By trace ID, the most first."""
    complete_above_ns: int


def read_candidates(
    database: Database, selection: Selection, order: str, limit: int, of_few: bool
) -> Candidates | None:
    """Those for a list of `limit` requests in the `order` of `read_heaviest_traces`; None: all rows are read, because
    they are few, or because the selector or the time range needs it. `of_few`: half as many again as are listed.
    Raises ApiError."""
    known = ("service", OPERATION, *database.request_labels)
    if any(matcher.label not in known for matcher in selection.matchers):
        return None
    kinds = [OF_REQUESTS, selection.profile_type]
    if order == "thread_cpu_ns":
        kinds = [OF_REQUESTS]
    elif order == "sampled_cpu_ns" or not is_cpu(selection.profile_type):
        kinds = [selection.profile_type]
    ranges = [selection.time_range]
    if not are_many(database, ranges, [OF_REQUESTS, selection.profile_type]):
        return None
    count = limit + limit // 2 if of_few else max(2 * limit, MORE_CANDIDATES)
    ids: dict[str, None] = {}
    complete_above_ns = 0
    for each in _read_kinds(database, selection, kinds, count):
        # A single sample counts 50 ms. So the candidates by samples leave out those with no more than what thread CPU
        # leaves out anyway.
        ids |= dict.fromkeys(trace_id for trace_id, used in each.used_ns.items() if used >= complete_above_ns)
        complete_above_ns = max(complete_above_ns, each.complete_above_ns)
    return Candidates(list(ids), complete_above_ns)


def _read_kinds(database: Database, selection: Selection, kinds: Sequence[str], count: int) -> list[_OfKind]:
    """The `count` best candidates of each kind: a profile type, or OF_REQUESTS for thread CPU."""
    conditions = recent_conditions([selection.time_range], kinds)
    of_operation, others = split_matchers(selection.matchers)
    add_request_matchers(conditions, others)
    if of_operation:  # what is of samples has no operation
        conditions.add_any([f"profile_type != '{OF_REQUESTS}'", matching(conditions, "operation", of_operation)])
    most = _PIECES * (count + 1)
    answer = database.table(_SQL.format(where=conditions.where, most=most), conditions.parameters)
    return [_of_kind(answer.filter(pc.equal(answer["kind"], kind.encode())), count, most) for kind in kinds]


def _of_kind(rows: pa.Table, count: int, most: int) -> _OfKind:
    """`rows`: of one kind, the best first; `most`: of how many pieces they are at most."""
    used: list[int] = rows["used"].to_pylist()
    bounds = [0, *rows["twentieth"].to_pylist()[:1], *used[count : count + 1]]
    if sum(rows["pieces"].to_pylist()) == most:  # there may be more
        bounds.append(min(rows["least"].to_pylist()))
    return _OfKind(dict(zip(texts(rows["id"])[:count], used, strict=False)), max(bounds))
