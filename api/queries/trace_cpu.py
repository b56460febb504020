"""The CPU of one request: by span, service and host."""

from typing import Any

import pyarrow as pa

from api.queries.conditions import Conditions
from api.queries.database import Database, texts

_MAX_SPANS = 10_000
_NO_SPAN = "0" * 16
_SUMS = ("sampled_cpu_ns", "thread_cpu_ns", "samples")

_CPU_SQL = """
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


def read_trace_cpu(database: Database, trace_id: str, profile_type: str) -> dict[str, Any] | None:
    """Returns the CPU as the API gives it, or None if nothing is known of the trace. Raises ApiError."""
    samples = trace_conditions(trace_id, profile_type)
    activity = Conditions(parameters=samples.parameters)
    activity.add(f"trace_id = {activity.bind_trace_id(trace_id)}")
    cpu = database.table(
        _CPU_SQL.format(samples=samples.where, activity=activity.where, limit=_MAX_SPANS), samples.parameters
    )
    of_trace = Conditions()
    of_trace.add(f"trace_id = {of_trace.bind_trace_id(trace_id)}")
    spans = database.table(_SPANS_SQL.format(where=of_trace.where, limit=_MAX_SPANS), of_trace.parameters)
    if not len(cpu) and not len(spans):
        return None
    sums = {name: sum(cpu[name].to_pylist()) for name in _SUMS}
    return {"trace_id": trace_id, **sums} | {
        "spans": _spans(cpu, spans),
        "services": _grouped(cpu, "service"),
        "hosts": _grouped(cpu, "host_id"),
    }


def trace_conditions(trace_id: str, profile_type: str) -> Conditions:
    """Conditions on `trace_samples`."""
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    conditions.add(f"profile_type = {conditions.bind(profile_type, 'String')}")
    return conditions


def _grouped(cpu: pa.Table, by: str) -> list[dict[str, Any]]:
    """Sums for each value of the column `by`, heaviest first."""
    groups: dict[str, dict[str, Any]] = {}
    columns = (cpu[name].to_pylist() for name in _SUMS)
    for value, *sums in zip(texts(cpu[by]), *columns, strict=True):
        group = groups.setdefault(value, {by: value} | dict.fromkeys(_SUMS, 0))
        for name, number in zip(_SUMS, sums, strict=True):
            group[name] += number
    return sorted(groups.values(), key=lambda group: (-group["sampled_cpu_ns"], -group["thread_cpu_ns"]))


def _spans(cpu: pa.Table, spans: pa.Table) -> list[dict[str, Any]]:
    """Spans that were reported or used CPU, heaviest first. CPU of the trace outside of any span has span ID ""."""
    cpu_of_span = {group["span_id"]: group for group in _grouped(cpu, "span_id")}
    service_of_span = dict(zip(texts(cpu["span_id"]), texts(cpu["service"]), strict=True))
    reported = {
        span_id: {
            "name": name,
            "service": service,
            "parent_span_id": parent,
            "start_unix_nano": start,
            "end_unix_nano": end,
        }
        for span_id, parent, name, service, start, end in zip(
            *(texts(spans[column]) for column in ("id", "parent", "span_name", "span_service")),
            *(spans[column].to_pylist() for column in ("start_unix_nano", "end_unix_nano")),
            strict=True,
        )
    }
    rows = []
    for span_id in cpu_of_span.keys() | reported.keys():
        service = service_of_span.get(span_id, "")
        span = reported.get(span_id, {"name": "", "service": service, "parent_span_id": _NO_SPAN})
        rows.append({**span, **cpu_of_span.get(span_id, dict.fromkeys(_SUMS, 0)), "span_id": span_id})
    for row in rows:
        for name in ("span_id", "parent_span_id"):
            row[name] = "" if row[name] == _NO_SPAN else row[name]
    return sorted(rows, key=lambda row: (-row["sampled_cpu_ns"], -row["thread_cpu_ns"], row["span_id"]))
