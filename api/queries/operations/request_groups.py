"""The slow and the fast requests of an operation: what their samples are."""

from dataclasses import dataclass
from typing import Literal

from api.queries.database import Database
from api.queries.operations.operations import request_conditions, request_intervals, split_operation, until_ended
from api.queries.selection.conditions import Conditions
from api.queries.selection.sample_operations import active_spans, select_reported_operations
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import StackValues, read_stack_values
from api.queries.traces.thinned import add_drawn
from icestream.clickhouse.operation_sums import requests_from

Measure = Literal["duration", "cpu"]
_COLUMNS: dict[Measure, str] = {"duration": "duration_ns", "cpu": "request_cpu"}


@dataclass(frozen=True)
class RequestGroup:
    """Some requests of an operation."""

    requests: int
    mean_duration_ns: int
    mean_cpu_ns: int
    bound_ns: int  # the least duration or CPU of slow requests, or the most of fast ones
    stacks: StackValues  # of all these requests together


def read_slow_and_fast(
    database: Database,
    selection: Selection,
    measure: Measure,
    slow: float,
    fast: float,
    max_stacks: int,
    only_drawn: bool = False,
) -> tuple[RequestGroup, RequestGroup] | None:
    """The requests at or above the percentile `slow` of a measure, and those at or below the percentile `fast`; None if
    there are no requests that are slower than the fast ones. Raises ApiError.

    Requests are those that began in the time range. Their samples are all that belong to them, also after it.
    `only_drawn`: see `api.queries.traces.thinned.add_drawn`.
    """
    column = _COLUMNS[measure]
    split_operation(database, selection.matchers)
    (ended,) = until_ended(database, list(selection.matchers), [selection.time_range])
    low, high = Conditions(), Conditions()
    answer = database.table(
        f"SELECT quantileExactHigh({slow / 100})({column}) AS slow, quantileExactLow({fast / 100})({column}) AS fast,"
        f" count() AS n FROM {_requests(selection, ended, low, only_drawn)}",
        low.parameters,
    )
    (bounds,) = answer.to_pylist()
    if not bounds["n"] or bounds["slow"] <= bounds["fast"]:
        return None
    wheres = f"{column} >= {int(bounds['slow'])}", f"{column} <= {int(bounds['fast'])}"
    sums = ", ".join(
        f"countIf({where}) AS n{side}, avgIf(duration_ns, {where}) AS d{side}, avgIf(request_cpu, {where}) AS c{side}"
        for side, where in enumerate(wheres)
    )
    (row,) = database.table(
        f"SELECT {sums} FROM {_requests(selection, ended, high, only_drawn)}", high.parameters
    ).to_pylist()
    groups = [
        RequestGroup(
            row[f"n{side}"], round(row[f"d{side}"]), round(row[f"c{side}"]), int(bounds[name]),
            _read_stacks(database, selection, ended, where, max_stacks, only_drawn),
        )
        for side, (name, where) in enumerate(zip(("slow", "fast"), wheres, strict=True))
    ]  # fmt: skip
    return groups[0], groups[1]


def _requests(selection: Selection, ended: TimeRange, conditions: Conditions, only_drawn: bool) -> str:
    """What to select from; parameters are added to `conditions`. `ended`: the time range until they have ended."""
    matchers, time_range = list(selection.matchers), selection.time_range
    requests = request_conditions(conditions.parameters, matchers, [time_range])
    if only_drawn:
        add_drawn(requests)
    intervals = request_intervals(conditions.parameters, requests.where, [ended])
    return requests_from(requests.where, intervals.where)


def _read_stacks(
    database: Database, selection: Selection, ended: TimeRange, where: str, max_stacks: int, only_drawn: bool
) -> StackValues:
    of_service = [matcher for matcher in selection.matchers if matcher.label == "service"]
    of_any = Selection(selection.profile_type, tuple(of_service), ended)
    samples = of_any.conditions()
    active, others = active_spans(samples.parameters, [ended], of_service)
    requests = f"SELECT trace_id, span_id FROM {_requests(selection, ended, samples, only_drawn)} WHERE {where}"
    known = f"SELECT trace_id, span_id FROM span_operations {active.where}"
    reported = select_reported_operations(of_any.of_any_request([ended], samples.parameters), [ended], known)
    of_requests = f"(trace_id, entry_span_id) IN ({requests})"
    found = [f"{known} AND {of_requests}", f"SELECT trace_id, span_id FROM ({reported}) WHERE {of_requests}"]
    if others:
        found.append(f"SELECT trace_id, span_id FROM activity {others.where} AND operation != '' AND {of_requests}")
    samples.add(f"(trace_id, span_id) IN ({' UNION ALL '.join(found)})")
    return read_stack_values(database, "samples", samples, max_stacks)
