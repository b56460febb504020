"""Which requests used most CPU."""

from dataclasses import dataclass
from typing import Any

from api.queries.conditions import Where, add_matchers, add_time
from api.queries.database import Database, texts
from api.queries.selection import Scope
from api.queries.trace_id import bind_trace_id, bind_trace_ids


@dataclass(frozen=True)
class After:
    """The last trace of the page before."""

    value: int
    trace_id: str


@dataclass(frozen=True)
class Limits:
    """Nanoseconds a trace must have at least, of sampled CPU and of the threads' CPU clocks."""

    min_sampled_cpu_ns: int = 0
    min_thread_cpu_ns: int = 0


def read_heaviest(
    database: Database, scope: Scope, order: str, limits: Limits, after: After | None, many: int
) -> list[dict[str, Any]]:
    """At most `many` traces as the API gives them, those with most `order` first (sampled_cpu_ns or thread_cpu_ns).

    Raises ApiError.
    """
    where = scope.where()
    samples = f"SELECT trace_id, service, sum(value) AS v, 0 AS w, sum(count) AS c FROM trace_samples {where.sql}"
    parts = [f"{samples} GROUP BY trace_id, service"]
    if all(matcher.label == "service" for matcher in scope.matchers):
        parts.append(_clocks(scope, where))
    having = [
        f"sampled_cpu_ns >= {where.bind(limits.min_sampled_cpu_ns, 'Int64')}",
        f"thread_cpu_ns >= {where.bind(limits.min_thread_cpu_ns, 'Int64')}",
    ]
    if after is not None:
        last = f"({where.bind(after.value, 'Int64')}, {bind_trace_id(where, after.trace_id)})"
        having.append(f"({order}, trace_id) < {last}")
    answer = database.table(
        "SELECT lower(hex(trace_id)) AS id, argMax(service, (v + w, service)) AS service,"
        " sum(v) AS sampled_cpu_ns, toInt64(sum(w)) AS thread_cpu_ns, sum(c) AS samples"
        f" FROM ({' UNION ALL '.join(parts)})"
        f" GROUP BY trace_id HAVING {' AND '.join(having)} ORDER BY {order} DESC, trace_id DESC LIMIT {int(many)}",
        where.parameters,
    )
    ids = texts(answer["id"])
    roots = read_roots(database, ids)
    rows = zip(
        ids,
        texts(answer["service"]),
        *(answer[n].to_pylist() for n in ("sampled_cpu_ns", "thread_cpu_ns", "samples")),
        strict=True,
    )
    return [
        {
            "trace_id": trace_id,
            "operation": roots.get(trace_id, ("", ""))[0],
            "service": roots.get(trace_id, ("", ""))[1] or service,
            "sampled_cpu_ns": sampled_cpu_ns,
            "thread_cpu_ns": thread_cpu_ns,
            "samples": samples,
        }
        for trace_id, service, sampled_cpu_ns, thread_cpu_ns, samples in rows
    ]


def read_roots(database: Database, trace_ids: list[str]) -> dict[str, tuple[str, str]]:
    """Name and service of the root span of traces, or of the first span where the root is not there."""
    if not trace_ids:
        return {}
    where = Where()
    where.add(f"trace_id IN {bind_trace_ids(where, trace_ids)}")
    first = "(parent_span_id != toFixedString('', 8), start_time)"
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, argMin(name, {first}) AS operation, argMin(service, {first}) AS of"
        f" FROM spans {where.sql} GROUP BY trace_id",
        where.parameters,
    )
    columns = (texts(answer[name]) for name in ("id", "operation", "of"))
    return {trace_id: (name, service) for trace_id, name, service in zip(*columns, strict=True)}


def _clocks(scope: Scope, binder: Where) -> str:
    """The same of `activity`, which has no series."""
    where = Where(parameters=binder.parameters)
    add_time(where, scope.time.start_unix_nano, scope.time.end_unix_nano, column="start_time")
    add_matchers(where, scope.matchers)
    return f"SELECT trace_id, service, 0, sum(thread_cpu_ns), 0 FROM activity {where.sql} GROUP BY trace_id, service"
