"""Requests by their entry spans: ordered by duration or start, and how many there are of each size over time.

Unlike in `heaviest_traces`, a request without CPU is one, too.
"""

import math
from dataclasses import dataclass, field

from api.queries.database import Database, texts
from api.queries.operations.operations import request_conditions, request_intervals, split_operation, until_ended
from api.queries.selection.conditions import Conditions
from api.queries.selection.selection import Selection
from api.queries.traces.heaviest_traces import LastTrace
from api.queries.traces.thinned import add_kept
from icestream.clickhouse.operation_sums import requests_from

LEVELS = 4
"""Levels of a power of ten, in which sizes are counted."""
_VALUES = {"duration": "duration_ns", "cpu": "request_cpu"}


@dataclass(frozen=True)
class RequestFilter:
    """Which requests are listed; bounds are inclusive below and exclusive above, by measure: duration or cpu."""

    least_ns: dict[str, int] = field(default_factory=dict)
    below_ns: dict[str, int] = field(default_factory=dict)
    only_errors: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.least_ns or self.below_ns or self.only_errors)


def read_entered(
    database: Database,
    selection: Selection,
    order: str,
    wanted: RequestFilter,
    last: LastTrace | None,
    limit: int,
    only_kept: bool,
) -> dict[str, int]:
    """The values by which at most `limit` traces behind `last` are ordered, the largest first, by trace ID. Raises
    ApiError."""
    conditions = Conditions()
    having = ["1"]
    for measure in _VALUES:
        for bounds, comparison in ((wanted.least_ns, ">="), (wanted.below_ns, "<")):
            if measure in bounds:
                having.append(f"{measure} {comparison} {conditions.bind(bounds[measure], 'Int64')}")
    if wanted.only_errors:
        having.append("failed")
    if last is not None:
        bound = f"({conditions.bind(last.value, 'Int64')}, {conditions.bind_trace_id(last.trace_id)})"
        having.append(f"({order}, trace_id) < {bound}")
    answer = database.table(
        "SELECT lower(hex(trace_id)) AS id, max(toInt64(duration_ns)) AS duration, sum(toInt64(request_cpu)) AS cpu,"
        " toUnixTimestamp64Nano(min(start_time)) AS start, max(is_error) AS failed"
        f" FROM {_requests(database, selection, conditions, only_kept)} GROUP BY trace_id"
        f" HAVING {' AND '.join(having)} ORDER BY {order} DESC, trace_id DESC LIMIT {int(limit)}",
        conditions.parameters,
    )
    return dict(zip(texts(answer["id"]), answer[order].to_pylist(), strict=True))


@dataclass(frozen=True)
class RequestMap:
    """How many requests there are in each step of time, of each level (n cells)."""

    step: list[int]
    level: list[int]  # a size is from 10 ** (level / LEVELS) nanoseconds up to the next level's
    requests: list[int]
    errors: list[int]


def read_request_map(database: Database, selection: Selection, measure: str, step_ms: int) -> RequestMap:
    """Counts requests by when they began, and by their duration or CPU. Raises ApiError."""
    conditions = Conditions()
    start = conditions.bind(selection.time_range.start_unix_nano // 10**6, "Int64")
    answer = database.table(
        f"SELECT intDiv(toUnixTimestamp64Milli(start_time) - {start}, {int(step_ms)}) AS step,"
        f" toInt32(floor(log10(greatest({_VALUES[measure]}, 1)) * {LEVELS} + 1e-9)) AS level, count() AS n,"
        f" countIf(is_error) AS failed FROM {_requests(database, selection, conditions, False)}"
        " GROUP BY step, level ORDER BY step, level",
        conditions.parameters,
    )
    return RequestMap(*(answer[name].to_pylist() for name in ("step", "level", "n", "failed")))


def bound_ns(level: int) -> int:
    """The least size of a level, in nanoseconds."""
    return math.ceil(10 ** (level / LEVELS))


def _requests(database: Database, selection: Selection, conditions: Conditions, only_kept: bool) -> str:
    """What to select from; parameters are added to `conditions`."""
    matchers = list(selection.matchers)
    split_operation(database, selection.matchers)
    (ended,) = until_ended(database, matchers, [selection.time_range])
    requests = request_conditions(conditions.parameters, matchers, [selection.time_range])
    if only_kept:
        add_kept(requests, selection.time_range, "start_time")
    intervals = request_intervals(conditions.parameters, requests.where, [ended])
    return requests_from(requests.where, intervals.where)
