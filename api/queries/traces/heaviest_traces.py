"""Which requests used the most CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from api.queries.database import Database, texts
from api.queries.operations.confidence import SAMPLED_COLUMNS, Sampled, is_cpu, sampled_rows
from api.queries.selection.conditions import Conditions, add_span_times, add_time, add_value_matcher
from api.queries.selection.sample_operations import add_request_matchers, split_matchers
from api.queries.selection.sample_spans import add_span_matchers, series_matchers
from api.queries.selection.selection import Selection
from api.queries.traces.heavy_candidates import read_candidates
from api.queries.traces.sample_period import read_periods
from api.queries.traces.thinned import add_kept

_CPU_COLUMNS = ("cpu_ns", "thread_cpu_ns", "sampled_cpu_ns")
_SELECTED = (
    "toString(argMax(of.service, (of.cpu, of.service))) AS heaviest, sum(of.sampled_cpu) AS sampled_cpu,"
    " sum(of.samples) AS samples, sum(of.squares) AS squares, max(of.longest_period) AS longest_period"
)
_SELECTED_COLUMNS = ("heaviest", "sampled_cpu", "samples", "squares", "longest_period")
"""What `_Selected` is made of, from `_select_cpu_by_service`."""


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


@dataclass(frozen=True)
class _Selected:
    """What is selected of a trace."""

    service: str  # the one in which it used the most CPU
    sampled: Sampled


@dataclass(frozen=True)
class _Request:
    """What is known of a trace beside its CPU."""

    operation: str = ""
    service: str = ""
    start_unix_nano: int | None = None
    duration_ns: int | None = None
    status: str = ""


@dataclass(frozen=True)
class HeaviestTraces:
    traces: list[dict[str, Any]]
    """As the API gives them."""
    complete_above_ns: int | None
    """As in `Candidates`; None: all requests were compared."""


def read_heaviest_traces(
    database: Database,
    selection: Selection,
    order: str,
    min_cpu: MinCpu,
    last: LastTrace | None,
    limit: int,
    only_kept: bool = False,
    of_few: bool = True,
) -> HeaviestTraces:
    """At most `limit` traces, behind `last`; those with the most `order` come first.

    `order` is cpu_ns, thread_cpu_ns or sampled_cpu_ns. `only_kept`: of thinned days, without those that have lost rows:
    a few samples would make them look heavy. `of_few`: the first page is of few candidates, if these fill it. Raises
    ApiError.
    """
    of_few = of_few and last is None
    conditions = Conditions()
    having = [f"{name} >= {conditions.bind(getattr(min_cpu, name), 'Int64')}" for name in _CPU_COLUMNS]
    if last is not None:
        bound = f"({conditions.bind(last.value, 'Int64')}, {conditions.bind_trace_id(last.trace_id)})"
        having.append(f"({order}, trace_id) < {bound}")
    candidates = None if only_kept else read_candidates(database, selection, order, limit, of_few)
    chosen = None if candidates is None else candidates.trace_ids
    by_service = _select_cpu_by_service(selection, conditions.parameters, database.request_labels, chosen, only_kept)
    # Few requests are read at once with all that is known of them.
    more, columns = ("", "") if chosen is None else (f", {_SELECTED}", f", {', '.join(_SELECTED_COLUMNS)}")
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, {', '.join(_CPU_COLUMNS)}{columns} FROM (SELECT trace_id,"
        " sum(of.cpu) AS cpu_ns, sum(of.thread_cpu) AS thread_cpu_ns, sum(of.sampled_cpu) AS sampled_cpu_ns"
        f"{more} FROM ({by_service}) AS of GROUP BY trace_id"
        f" HAVING {' AND '.join(having)} ORDER BY {order} DESC, trace_id DESC LIMIT {int(limit)})"
        f" ORDER BY {order} DESC, id DESC",
        conditions.parameters,
    )
    ids = texts(answer["id"])
    if of_few and candidates and candidates.complete_above_ns and len(ids) < limit:  # others are not selected
        return read_heaviest_traces(database, selection, order, min_cpu, last, limit, of_few=False)
    selected = _selected(answer) if columns else _read_selected(database, selection, ids)
    traces = _as_json(database, selection, ids, selected, _cpu_of(answer, ids))
    return HeaviestTraces(traces, None if candidates is None else candidates.complete_above_ns)


def read_traces(database: Database, selection: Selection, trace_ids: list[str]) -> list[dict[str, Any]]:
    """These traces, in this order, also those without CPU. Raises ApiError."""
    if not trace_ids:
        return []
    parameters: dict[str, Any] = {}
    by_service = _select_cpu_by_service(selection, parameters, trace_ids)
    sums = ", ".join(f"sum(of.{name.removesuffix('_ns')}) AS {name}" for name in _CPU_COLUMNS)
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, {sums}, {_SELECTED} FROM ({by_service}) AS of GROUP BY trace_id",
        parameters,
    )
    return _as_json(database, selection, trace_ids, _selected(answer), _cpu_of(answer, texts(answer["id"])))


def _cpu_of(answer: pa.Table, trace_ids: list[str]) -> dict[str, dict[str, int]]:
    rows = zip(*(answer[name].to_pylist() for name in _CPU_COLUMNS), strict=True)
    return {trace_id: dict(zip(_CPU_COLUMNS, row, strict=True)) for trace_id, row in zip(trace_ids, rows, strict=True)}


def _as_json(
    database: Database,
    selection: Selection,
    trace_ids: list[str],
    selected: dict[str, _Selected],
    cpu: dict[str, dict[str, int]],
) -> list[dict[str, Any]]:
    """Traces as the API gives them; `cpu`: the values of _CPU_COLUMNS."""
    requests = _read_requests(database, selection, trace_ids)
    unsampled = sorted({each.service for each in selected.values() if not each.sampled.longest_period})
    periods = read_periods(database, selection.profile_type, unsampled, selection.time_range)
    traces = []
    for trace_id in trace_ids:
        here = selected.get(trace_id, _Selected("", Sampled()))
        request = requests.get(trace_id, _Request())
        of_samples = here.sampled.as_json(periods.get(here.service, 0.0), selection.profile_type)
        about = {"trace_id": trace_id} | vars(request) | {"service": request.service or here.service}
        traces.append(about | of_samples | cpu.get(trace_id, dict.fromkeys(_CPU_COLUMNS, 0)))
    return traces


def _select_cpu_by_service(
    selection: Selection,
    parameters: dict[str, Any],
    request_labels: Sequence[str],
    trace_ids: list[str] | None = None,
    only_kept: bool = False,
) -> str:
    """A query for each trace's CPU in each service; of all traces, or of these."""
    samples = selection.conditions(parameters)
    activity = _activity_conditions(selection, samples, request_labels)
    of_traces = "" if trace_ids is None else _of_traces(samples, trace_ids)
    if only_kept:
        add_kept(samples, selection.time_range, "time")
        add_kept(activity, selection.time_range, "start_time")
    cpu = "if(thread_cpu > 0, thread_cpu, sampled_cpu)" if is_cpu(selection.profile_type) else "sampled_cpu"
    return (
        f"SELECT trace_id, service, {SAMPLED_COLUMNS}, toInt64(sum(clock)) AS thread_cpu, {cpu} AS cpu FROM ("
        f"SELECT trace_id, service, value, count, 0 AS clock FROM trace_samples {of_traces} {samples.where} UNION ALL"
        f" SELECT trace_id, service, 0, 0, thread_cpu_ns FROM activity {of_traces} {activity.where})"
        " GROUP BY trace_id, service"
    )


def _of_traces(conditions: Conditions, trace_ids: list[str]) -> str:
    """A PREWHERE clause for the rows of these traces; parameters are added. With all conditions in WHERE, ClickHouse
    first compares the times of the thousands of rows around each of these, which takes half as long again."""
    return f"PREWHERE trace_id IN {conditions.bind_trace_ids(trace_ids)}"


def _activity_conditions(selection: Selection, samples: Conditions, request_labels: Sequence[str]) -> Conditions:
    """Conditions on `activity`, which has no series.

    Where labels select that requests do not have, its rows are those of the processes that have such samples.
    """
    activity = Conditions(parameters=samples.parameters)
    add_time(activity, selection.time_range, column="start_time")
    for matcher in split_matchers(selection.matchers)[0]:
        add_value_matcher(activity, "operation", matcher)
    add_span_matchers(activity, [selection.time_range], selection.matchers, has_series=False)
    others = series_matchers(selection.matchers)
    known = [matcher for matcher in others if matcher.label in ("service", *request_labels)]
    add_request_matchers(activity, known)
    if len(known) < len(others):
        process = "trace_id, host_id, pid"
        activity.add(f"({process}) IN (SELECT {process} FROM trace_samples {samples.where})")
    return activity


def _read_selected(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, _Selected]:
    if not trace_ids:
        return {}
    parameters: dict[str, Any] = {}
    by_service = _select_cpu_by_service(selection, parameters, database.request_labels, trace_ids)
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, {_SELECTED} FROM ({by_service}) AS of GROUP BY trace_id", parameters
    )
    return _selected(answer)


def _selected(answer: pa.Table) -> dict[str, _Selected]:
    rows = map(_Selected, texts(answer["heaviest"]), sampled_rows(answer))
    return dict(zip(texts(answer["id"]), rows, strict=True))


def _read_requests(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, _Request]:
    """Each trace as its root span tells it, or its first span if the root is not stored, or else its activity."""
    if not trace_ids:
        return {}
    found = _read_spans(database, selection, trace_ids)
    others = [trace_id for trace_id in trace_ids if trace_id not in found]
    return found | _read_activity(database, selection, others) if others else found


def _read_spans(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, _Request]:
    spans = Conditions()
    of_traces = _of_traces(spans, trace_ids)
    add_span_times(spans, [selection.time_range])  # an ID is looked for in each part of these days
    best = "(parent_span_id != toFixedString('', 8), start)"
    answer = database.table(
        f"SELECT lower(hex(trace_id)) AS id, argMin(name, {best}) AS operation,"
        f" argMin(toString(service), {best}) AS root_service, argMin(start, {best}) AS start_unix_nano,"
        f" argMin(duration, {best}) AS request_ns, if(max(failed), 'error', '') AS worst"
        " FROM (SELECT trace_id, name, service, parent_span_id, toUnixTimestamp64Nano(start_time) AS start,"
        " status = 'error' AS failed,"
        f" greatest(toUnixTimestamp64Nano(end_time) - start, 0) AS duration FROM spans {of_traces} {spans.where})"
        " GROUP BY trace_id",
        spans.parameters,
    )
    columns = [texts(answer[name]) for name in ("id", "operation", "root_service")]
    times = (answer[name].to_pylist() for name in ("start_unix_nano", "request_ns"))
    rows = zip(*columns, *times, texts(answer["worst"]), strict=True)
    return {trace_id: _Request(*row) for trace_id, *row in rows}


def _read_activity(database: Database, selection: Selection, trace_ids: list[str]) -> dict[str, _Request]:
    activity = Conditions()
    of_traces = _of_traces(activity, trace_ids)
    add_span_times(activity, [selection.time_range])
    answer = database.table(
        "SELECT lower(hex(trace_id)) AS id, toUnixTimestamp64Nano(min(start_time)) AS start_unix_nano,"
        " max(toUnixTimestamp64Nano(start_time) + toInt64(duration_ns)) - start_unix_nano AS request_ns"
        f" FROM activity {of_traces} {activity.where} GROUP BY trace_id",
        activity.parameters,
    )
    times = (answer[name].to_pylist() for name in ("start_unix_nano", "request_ns"))
    rows = zip(texts(answer["id"]), *times, strict=True)
    return {trace_id: _Request(start_unix_nano=start, duration_ns=length) for trace_id, start, length in rows}
