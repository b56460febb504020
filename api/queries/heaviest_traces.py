"""Which requests used the most CPU."""

from dataclasses import dataclass
from typing import Any

from api.queries.conditions import Conditions, add_matchers, add_time, add_value_matcher
from api.queries.confidence import SAMPLED_COLUMNS, Sampled, is_cpu, sampled_rows
from api.queries.database import Database, texts
from api.queries.sample_operations import split_matchers
from api.queries.sample_period import read_periods
from api.queries.sample_spans import add_span_matchers, series_matchers
from api.queries.selection import Selection
from api.queries.thinned import add_kept

_CPU_COLUMNS = ("cpu_ns", "thread_cpu_ns", "sampled_cpu_ns")


@dataclass(frozen=True)
class LastTrace:
    """The last trace of the previous page: the value that traces are ordered by, and the ID."""

    value: int
    trace_id: str


@dataclass(frozen=True)
class MinCpu:
    """How much CPU a trace must have to be listed."""

    cpu_ns: int = 0
    thread_cpu_ns: int = 0
    sampled_cpu_ns: int = 0


def read_heaviest_traces(
    database: Database,
    selection: Selection,
    order: str,
    min_cpu: MinCpu,
    last: LastTrace | None,
    limit: int,
    only_kept: bool = False,
) -> list[dict[str, Any]]:
    """At most `limit` traces as the API gives them, behind `last`; those with the most `order` come first.

    `order` is cpu_ns, thread_cpu_ns or sampled_cpu_ns. `only_kept`: of thinned days, without those that have lost rows:
    a few samples would make them look heavy. Raises ApiError.
    """
    conditions = Conditions()
    having = [f"{name} >= {conditions.bind(getattr(min_cpu, name), 'Int64')}" for name in _CPU_COLUMNS]
    if last is not None:
        bound = f"({conditions.bind(last.value, 'Int64')}, {conditions.bind_trace_id(last.trace_id)})"
        having.append(f"({order}, trace_id) < {bound}")
    by_service = _select_cpu_by_service(selection, conditions.parameters, only_kept=only_kept)
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, {', '.join(_CPU_COLUMNS)} FROM (SELECT trace_id, sum(cpu) AS cpu_ns,"
        f" sum(thread_cpu) AS thread_cpu_ns, sum(sampled_cpu) AS sampled_cpu_ns FROM ({by_service}) GROUP BY trace_id"
        f" HAVING {' AND '.join(having)} ORDER BY {order} DESC, trace_id DESC LIMIT {int(limit)})"
        f" ORDER BY {order} DESC, id DESC",
        conditions.parameters,
    )
    ids = texts(answer["id"])
    services = _read_services(database, selection, ids)
    roots = _read_roots(database, ids)
    sampled = _read_sampled(database, selection, ids)
    unsampled = sorted({services.get(i, "") for i in ids if not sampled.get(i, Sampled()).longest_period})
    periods = read_periods(database, selection.profile_type, unsampled, selection.time_range)
    traces = []
    for trace_id, *times in zip(ids, *(answer[name].to_pylist() for name in _CPU_COLUMNS), strict=True):
        service = services.get(trace_id, "")
        operation, root_service = roots.get(trace_id, ("", ""))
        of_samples = sampled.get(trace_id, Sampled()).as_json(periods.get(service, 0.0), selection.profile_type)
        about = {"trace_id": trace_id, "operation": operation, "service": root_service or service}
        traces.append(about | of_samples | dict(zip(_CPU_COLUMNS, times, strict=True)))
    return traces


def _select_cpu_by_service(
    selection: Selection, parameters: dict[str, Any], trace_ids: list[str] | None = None, only_kept: bool = False
) -> str:
    """A query for each trace's CPU in each service; of all traces, or of these."""
    samples = selection.conditions(parameters)
    activity = _activity_conditions(selection, samples)
    if trace_ids is not None:
        for conditions in (samples, activity):
            conditions.add(f"trace_id IN {conditions.bind_trace_ids(trace_ids)}")
    if only_kept:
        add_kept(samples, selection.time_range, "time")
        add_kept(activity, selection.time_range, "start_time")
    cpu = "if(thread_cpu > 0, thread_cpu, sampled_cpu)" if is_cpu(selection.profile_type) else "sampled_cpu"
    return (
        f"SELECT trace_id, service, sum(v) AS sampled_cpu, toInt64(sum(w)) AS thread_cpu, {cpu} AS cpu FROM ("
        f"SELECT trace_id, service, value AS v, 0 AS w FROM trace_samples {samples.where} UNION ALL"
        f" SELECT trace_id, service, 0, thread_cpu_ns FROM activity {activity.where}) GROUP BY trace_id, service"
    )


def _activity_conditions(selection: Selection, samples: Conditions) -> Conditions:
    """Conditions on `activity`, which has no series.

    Where labels of series other than the service select, its rows are those of the processes that have such samples.
    """
    activity = Conditions(parameters=samples.parameters)
    add_time(activity, selection.time_range, column="start_time")
    for matcher in split_matchers(selection.matchers)[0]:
        add_value_matcher(activity, "operation", matcher)
    add_span_matchers(activity, [selection.time_range], selection.matchers, has_series=False)
    others = series_matchers(selection.matchers)
    add_matchers(activity, [matcher for matcher in others if matcher.label == "service"])
    if any(matcher.label != "service" for matcher in others):
        process = "trace_id, host_id, pid"
        activity.add(f"({process}) IN (SELECT {process} FROM trace_samples {samples.where})")
    return activity


def _read_services(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, str]:
    """The service in which each trace used the most CPU."""
    if not trace_ids:
        return {}
    parameters: dict[str, Any] = {}
    by_service = _select_cpu_by_service(selection, parameters, trace_ids)
    answer = database.table(
        "SELECT lower(hex(trace_id)) AS id, toString(argMax(service, (cpu, service))) AS heaviest"
        f" FROM ({by_service}) GROUP BY trace_id",
        parameters,
    )
    return dict(zip(texts(answer["id"]), texts(answer["heaviest"]), strict=True))


def _read_sampled(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, Sampled]:
    """What the samples of each trace say; traces without samples are left out."""
    if not trace_ids:
        return {}
    conditions = selection.conditions()
    conditions.add(f"trace_id IN {conditions.bind_trace_ids(trace_ids)}")
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, {SAMPLED_COLUMNS} FROM trace_samples {conditions.where} GROUP BY trace_id",
        conditions.parameters,
    )
    return dict(zip(texts(answer["id"]), sampled_rows(answer), strict=True))


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
