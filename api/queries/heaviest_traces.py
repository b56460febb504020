"""Which requests used the most CPU."""

from dataclasses import dataclass
from typing import Any

from api.queries.conditions import Conditions, add_matchers, add_time
from api.queries.database import Database, texts
from api.queries.selection import Selection


@dataclass(frozen=True)
class LastTrace:
    """The last trace of the previous page: the value that traces are ordered by, and the ID."""

    value: int
    trace_id: str


@dataclass(frozen=True)
class MinCpu:
    """How much CPU a trace must have to be listed."""

    sampled_cpu_ns: int = 0
    thread_cpu_ns: int = 0


def read_heaviest_traces(
    database: Database, selection: Selection, order: str, min_cpu: MinCpu, last: LastTrace | None, limit: int
) -> list[dict[str, Any]]:
    """At most `limit` traces as the API gives them, behind `last`; those with the most `order` come first.

    `order` is sampled_cpu_ns or thread_cpu_ns. Raises ApiError.
    """
    conditions = selection.conditions()
    parts = [
        "SELECT trace_id, service, sum(value) AS v, 0 AS w, sum(count) AS c"
        f" FROM trace_samples {conditions.where} GROUP BY trace_id, service"
    ]
    if all(matcher.label == "service" for matcher in selection.matchers):
        parts.append(_select_thread_cpu(selection, conditions.parameters))
    having = [
        f"sampled_cpu_ns >= {conditions.bind(min_cpu.sampled_cpu_ns, 'Int64')}",
        f"thread_cpu_ns >= {conditions.bind(min_cpu.thread_cpu_ns, 'Int64')}",
    ]
    if last is not None:
        bound = f"({conditions.bind(last.value, 'Int64')}, {conditions.bind_trace_id(last.trace_id)})"
        having.append(f"({order}, trace_id) < {bound}")
    answer = database.table(
        "SELECT lower(hex(trace_id)) AS id, argMax(service, (v + w, service)) AS service,"
        " sum(v) AS sampled_cpu_ns, toInt64(sum(w)) AS thread_cpu_ns, sum(c) AS samples"
        f" FROM ({' UNION ALL '.join(parts)})"
        f" GROUP BY trace_id HAVING {' AND '.join(having)} ORDER BY {order} DESC, trace_id DESC LIMIT {int(limit)}",
        conditions.parameters,
    )
    ids = texts(answer["id"])
    roots = _read_roots(database, ids)
    sums = (answer[name].to_pylist() for name in ("sampled_cpu_ns", "thread_cpu_ns", "samples"))
    return [
        {
            "trace_id": trace_id,
            "operation": roots.get(trace_id, ("", ""))[0],
            "service": roots.get(trace_id, ("", ""))[1] or service,
            "sampled_cpu_ns": sampled_cpu_ns,
            "thread_cpu_ns": thread_cpu_ns,
            "samples": samples,
        }
        for trace_id, service, sampled_cpu_ns, thread_cpu_ns, samples in zip(
            ids, texts(answer["service"]), *sums, strict=True
        )
    ]


def _select_thread_cpu(selection: Selection, parameters: dict[str, Any]) -> str:
    """The same columns of `activity`, which has no series: only the label `service` can select its rows."""
    conditions = Conditions(parameters=parameters)
    time_range = selection.time_range
    add_time(conditions, time_range.start_unix_nano, time_range.end_unix_nano, column="start_time")
    add_matchers(conditions, selection.matchers)
    return (
        "SELECT trace_id, service, 0, sum(thread_cpu_ns), 0"
        f" FROM activity {conditions.where} GROUP BY trace_id, service"
    )


def _read_roots(database: Database, trace_ids: list[str]) -> dict[str, tuple[str, str]]:
    """Name and service of each trace's root span, or of its first span if the root is not stored."""
    if not trace_ids:
        return {}
    conditions = Conditions()
    conditions.add(f"trace_id IN {conditions.bind_trace_ids(trace_ids)}")
    root_first = "(parent_span_id != toFixedString('', 8), start_time)"
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, argMin(name, {root_first}) AS operation,"
        f" argMin(service, {root_first}) AS root_service FROM spans {conditions.where} GROUP BY trace_id",
        conditions.parameters,
    )
    columns = (texts(answer[name]) for name in ("id", "operation", "root_service"))
    return {trace_id: (name, service) for trace_id, name, service in zip(*columns, strict=True)}
