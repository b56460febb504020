"""The CPU of one request: per span, service and host."""

from typing import Any

import pyarrow as pa

from api.queries.conditions import Where
from api.queries.database import Database, texts
from api.queries.trace_id import NO_SPAN, bind_trace_id

_MAX_SPANS = 10_000

_SQL = """
SELECT lower(hex(span)) AS span_id, service, host_id,
    sum(v) AS sampled_cpu_ns, toInt64(sum(w)) AS thread_cpu_ns, sum(c) AS samples
FROM
(
    SELECT span_id AS span, service, host_id, sum(value) AS v, 0 AS w, sum(count) AS c
    FROM trace_samples {samples} GROUP BY span_id, service, host_id
    UNION ALL
    SELECT span_id, service, host_id, 0, sum(thread_cpu_ns), 0
    FROM activity {activity} GROUP BY span_id, service, host_id
)
GROUP BY span, service, host_id
ORDER BY sampled_cpu_ns DESC, thread_cpu_ns DESC, span
LIMIT {limit}
"""

_SPANS_SQL = """
SELECT lower(hex(span_id)) AS id, lower(hex(argMax(parent_span_id, end_time))) AS parent,
    argMax(name, end_time) AS span_name,
    toString(argMax(service, end_time)) AS span_service,
    toUnixTimestamp64Nano(min(start_time)) AS start_unix_nano, toUnixTimestamp64Nano(max(end_time)) AS end_unix_nano
FROM spans {where} GROUP BY span_id ORDER BY start_unix_nano, id LIMIT {limit}
"""


def read_trace(database: Database, trace_id: str, profile_type: str) -> dict[str, Any] | None:
    """As the API gives it; None where nothing is known of the trace. Raises ApiError."""
    samples = trace_where(trace_id, profile_type)
    activity = Where(parameters=samples.parameters)
    activity.add(f"trace_id = {bind_trace_id(activity, trace_id)}")
    parts = database.table(
        _SQL.format(samples=samples.sql, activity=activity.sql, limit=_MAX_SPANS), samples.parameters
    )
    known = Where()
    known.add(f"trace_id = {bind_trace_id(known, trace_id)}")
    spans = database.table(_SPANS_SQL.format(where=known.sql, limit=_MAX_SPANS), known.parameters)
    if not len(parts) and not len(spans):
        return None
    return {"trace_id": trace_id, **_sums(parts)} | {
        "spans": _spans(parts, spans),
        "services": _grouped(parts, "service"),
        "hosts": _grouped(parts, "host_id"),
    }


def trace_where(trace_id: str, profile_type: str) -> Where:
    """Conditions on `trace_samples`."""
    where = Where()
    where.add(f"trace_id = {bind_trace_id(where, trace_id)}")
    where.add(f"profile_type = {where.bind(profile_type, 'String')}")
    return where


def _sums(parts: pa.Table) -> dict[str, int]:
    return {name: sum(parts[name].to_pylist()) for name in ("sampled_cpu_ns", "thread_cpu_ns", "samples")}


def _grouped(parts: pa.Table, by: str) -> list[dict[str, Any]]:
    """Sums per value of a column, heaviest first."""
    groups: dict[str, dict[str, Any]] = {}
    columns = (parts[name].to_pylist() for name in ("sampled_cpu_ns", "thread_cpu_ns", "samples"))
    for value, sampled_cpu_ns, thread_cpu_ns, samples in zip(texts(parts[by]), *columns, strict=True):
        group = groups.setdefault(value, {by: value, "sampled_cpu_ns": 0, "thread_cpu_ns": 0, "samples": 0})
        group["sampled_cpu_ns"] += sampled_cpu_ns
        group["thread_cpu_ns"] += thread_cpu_ns
        group["samples"] += samples
    return sorted(groups.values(), key=lambda group: (-group["sampled_cpu_ns"], -group["thread_cpu_ns"]))


def _spans(parts: pa.Table, spans: pa.Table) -> list[dict[str, Any]]:
    """Spans that were reported or used CPU, heaviest first. CPU of the trace outside of any span has span ID ""."""
    cpu = {group["span_id"]: group for group in _grouped(parts, "span_id")}
    service = dict(zip(texts(parts["span_id"]), texts(parts["service"]), strict=True))
    names = ("id", "parent", "span_name", "span_service")
    found = {
        span_id: {"name": name, "service": of, "parent_span_id": parent, "start_unix_nano": start, "end_unix_nano": end}
        for span_id, parent, name, of, start, end in zip(
            *(texts(spans[column]) for column in names),
            *(spans[column].to_pylist() for column in ("start_unix_nano", "end_unix_nano")),
            strict=True,
        )
    }
    rows = []
    for span_id in cpu.keys() | found.keys():
        about = found.get(span_id, {"name": "", "service": service.get(span_id, ""), "parent_span_id": NO_SPAN})
        sums = cpu.get(span_id, {"sampled_cpu_ns": 0, "thread_cpu_ns": 0, "samples": 0})
        rows.append({"sampled_cpu_ns": 0, **about, **sums, "span_id": span_id})
    for row in rows:
        for name in ("span_id", "parent_span_id"):
            row[name] = "" if row[name] == NO_SPAN else row[name]
    return sorted(rows, key=lambda row: (-row["sampled_cpu_ns"], -row["thread_cpu_ns"], row["span_id"]))
