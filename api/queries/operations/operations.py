"""The operations of services: how many requests they had, and what these used."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from api.errors import bad_request, too_large
from api.queries.database import Database, texts
from api.queries.operations.any_operations import ANSWERING_LEVELS, FINER_LEVELS, OPERATION_TABLES, any_operations
from api.queries.operations.confidence import sampled_rows
from api.queries.operations.recent import OF_REQUESTS, are_many, in_minutes, recent_conditions, were_replaced
from api.queries.rollups import ReadPlan, make_plan, read_buckets
from api.queries.selection.conditions import Conditions, add_times, add_value_matcher
from api.queries.selection.sample_operations import (
    OPERATION,
    add_request_matchers,
    select_span_operations,
    split_matchers,
)
from api.queries.selection.sample_spans import REQUEST_LABELS
from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse import operation_sums
from icestream.clickhouse.operation_sums import QUANTILES
from icestream.times import DAY_NS, HOUR_NS

_PERCENTILES = ("p50", "p95", "p99")
_AFTER_NS, _LONGEST_NS = HOUR_NS, DAY_NS
"""How long after the time range the intervals of requests that began in it are read: at least, and at most. A span
lasts 23 hours at most (gateway/readers/otlp_spans.py)."""
_MAX_OPERATIONS = 100_000
_OF_MEASURED = ("measured", "request_cpu_ns", "request_cpu_squares")
_IN_HOURS_NS = 12 * HOUR_NS
"""Longer time ranges begin with a whole hour: the minutes of a part of an hour may take longer than all other hours."""

# at_: whether it is of the time range; else it is of the period before.
_SQL = f"""
SELECT of, op, {{by}}({{matches}}) AS matches, sumIf(c, at_) AS samples, sumIf(sq, at_) AS squares,
    maxIf(longest, at_) AS longest_period,
    sumIf(v, at_) AS sampled_cpu_ns, sumIf(v, NOT at_) AS previous_sampled_cpu_ns,
    toInt64(sumIf(w, at_)) AS thread_cpu_ns, toInt64(sumIf(w, NOT at_)) AS previous_thread_cpu_ns,
    toInt64(sumIf(n, at_)) AS requests, toInt64(sumIf(n, NOT at_)) AS previous_requests,
    toInt64(sumIf(measured_, at_)) AS measured, toInt64(sumIf(failed, at_)) AS errors,
    sumIf(cpu_sum, at_) AS request_cpu_ns, sumIf(duration_sum, at_) AS request_duration_ns,
    sumIf(cpu_sq, at_) AS request_cpu_squares, sumIf(duration_sq, at_) AS request_duration_squares,
    sumIf(c, NOT at_) AS previous_samples, toInt64(sumIf(measured_, NOT at_)) AS previous_measured,
    toInt64(sumIf(failed, NOT at_)) AS previous_errors,
    sumIf(cpu_sum, NOT at_) AS previous_request_cpu_ns, sumIf(duration_sum, NOT at_) AS previous_request_duration_ns,
    sumIf(cpu_sq, NOT at_) AS previous_request_cpu_squares,
    sumIf(duration_sq, NOT at_) AS previous_request_duration_squares,
    request_cpu_ns / measured AS mean_cpu_ns, request_duration_ns / requests AS mean_duration_ns,
    quantilesDDMergeIf({QUANTILES})(cpu_, at_) AS cpu_quantiles,
    quantilesDDMergeIf({QUANTILES})(duration_, at_) AS duration_quantiles
FROM ({{parts}})
GROUP BY of, op{{groups}}
LIMIT {_MAX_OPERATIONS + 1}"""


@dataclass(frozen=True)
class Operations:
    """The operations of services that have some, and what belongs to none: together they are all samples of these."""

    all: list[dict[str, Any]]
    """A row whose operation is "" has what belongs to none. `matches`: whether the selected operations include it;
    `labels`: those of its requests by which operations were split.

    `measured`: of how many `requests` a clock measured CPU; `request_cpu_ns` and `request_cpu_squares`: the sums of
    their CPU, and of its squares; `request_duration_ns` and `request_duration_squares`: of the durations of all
    requests. The variance of their CPU is request_cpu_squares / measured - (request_cpu_ns / measured)**2: right to
    eight digits also where the deviation is a thousandth of the mean.
    """
    rollups: list[dict[str, Any]]
    """What was read of the time range from rollups, for people."""
    time_range: TimeRange
    """That of these numbers, in whole minutes."""

    @property
    def seconds(self) -> float:
        """How long the time range is; the last minute may not be over."""
        until = min(self.time_range.end_unix_nano, time.time_ns())
        return max((until - self.time_range.start_unix_nano) / 1e9, 1)

    @property
    def matching(self) -> list[dict[str, Any]]:
        return [row for row in self.all if row["operation"] and row["matches"]]

    @property
    def unattributed(self) -> list[dict[str, Any]]:
        """A row for each service that has some."""
        return [row for row in self.all if not row["operation"]]


@dataclass(frozen=True)
class _ReadPeriod:
    """The time range, or the period before it, and what is read of it."""

    at: str
    """`at_` of its rows."""
    time_range: TimeRange
    plan: ReadPlan


def read_operations(database: Database, selection: Selection, by: Sequence[str] = ()) -> Operations:
    """The operations of the services that match, in any order; with `by`, those of each value of these labels of
    requests. Raises ApiError.

    A request counts when it began, samples and intervals in their own time. Columns that begin with `previous_` are
    about the period of the same length just before the time range.

    What has rollups is read from these, the rest from rows; or from `recent_operations`, if it has all of the rest, of
    too many requests to read their rows.
    """
    of_operation, of_requests = split_operation(database, selection.matchers)
    now, before = periods = _periods(database, selection.time_range)
    rest = _joined([*before.plan.samples, *now.plan.samples])
    conditions = Conditions()
    parts = []
    for each in periods:
        of_period = Selection(selection.profile_type, (), each.time_range)
        for part in each.plan.parts:
            built = part.conditions(of_period, conditions.parameters)
            add_request_matchers(built, of_requests)
            built_rows = operation_sums.of_rollups(OPERATION_TABLES[part.level], each.at, built.where)
            parts.append(_needed(built_rows, each.at))
    if rest and are_many(database, rest) and not were_replaced(database, rest):
        parts += _of_recent(selection.profile_type, of_requests, periods, conditions)
    elif rest and any_operations(database, rest):
        parts += _of_rows(database, selection.profile_type, of_requests, now, rest, conditions)
    if not parts:
        return Operations([], now.plan.as_json(), now.time_range)
    matches = Conditions(parameters=conditions.parameters)
    for matcher in of_operation:
        add_value_matcher(matches, "op", matcher)
    columns = [f"JSONExtractString(labels_, {matches.bind(label, 'String')})" for label in by]
    sql = _SQL.format(
        matches=" AND ".join(matches.expressions) or "1",
        by="".join(f"{column} AS by{number}, " for number, column in enumerate(columns)),
        groups="".join(f", by{number}" for number in range(len(by))),
        parts=" UNION ALL ".join(parts),
    )
    answer = database.table(sql, conditions.parameters, reads_slow_rows=True)
    if len(answer) > _MAX_OPERATIONS:
        raise too_large(f"more than {_MAX_OPERATIONS} operations", "select fewer services, or a shorter time range")
    rows = _rows(answer, selection.profile_type, by)
    traced = {row["service"] for row in rows if row["operation"] or row["thread_cpu_ns"]}
    of_traced = [row for row in rows if row["service"] in traced]
    return Operations(of_traced, now.plan.as_json(), now.time_range)


def whole_range(time_range: TimeRange) -> TimeRange:
    """The time range in whole minutes, which rollups have, and from a whole hour on if it is long."""
    minutes = in_minutes(time_range)
    if minutes.end_unix_nano - minutes.start_unix_nano <= _IN_HOURS_NS:
        return minutes
    return TimeRange(minutes.start_unix_nano // HOUR_NS * HOUR_NS, minutes.end_unix_nano)


def _periods(database: Database, time_range: TimeRange) -> tuple[_ReadPeriod, _ReadPeriod]:
    """The time range in whole minutes, and the period of the same length just before."""
    now = whole_range(time_range)
    before = TimeRange(max(0, 2 * now.start_unix_nano - now.end_unix_nano), now.start_unix_nano)
    levels = (*ANSWERING_LEVELS, *FINER_LEVELS)
    buckets = read_buckets(database, TimeRange(before.start_unix_nano, now.end_unix_nano), levels)
    of_now, of_before = (
        make_plan(database, each, ANSWERING_LEVELS, finer=FINER_LEVELS, buckets=buckets) for each in (now, before)
    )
    return _ReadPeriod("1", now, of_now), _ReadPeriod("0", before, of_before)


def _of_recent(
    profile_type: str, of_requests: list[Matcher], periods: Sequence[_ReadPeriod], conditions: Conditions
) -> list[str]:
    """Returns SELECTs of what plans do not read from rollups, from `recent_operations`; parameters are added."""
    parts = []
    for period in periods:
        for each in (OF_REQUESTS, profile_type) if period.plan.samples else ():
            minutes = recent_conditions(period.plan.samples, [each], conditions.parameters, lengths=(60, 10))
            add_request_matchers(minutes, of_requests)
            of = operation_sums.of_recent if each == OF_REQUESTS else operation_sums.of_recent_samples
            parts.append(_needed(of(period.at, minutes.where), period.at))
    return parts


def _needed(rows: str, at: str) -> str:
    """A SELECT of sums with what is asked for: of the period before, there are no percentiles."""
    return rows if at == "1" else operation_sums.without_sketches(rows)


def _of_rows(
    database: Database,
    profile_type: str,
    of_requests: list[Matcher],
    now: _ReadPeriod,
    rest: list[TimeRange],
    conditions: Conditions,
) -> list[str]:
    """Returns SELECTs of what plans do not read from rollups; parameters are added. Raises ApiError."""
    parameters = conditions.parameters
    start = conditions.bind(now.time_range.start_unix_nano // 10**6, "Int64")
    from_start = f">= fromUnixTimestamp64Milli({start}, 'UTC')"
    samples = Selection(profile_type, (), now.time_range).of_any_request(rest, parameters)
    add_request_matchers(samples, of_requests)
    spans = select_span_operations(samples, rest, of_requests)
    began = request_conditions(parameters, of_requests, rest).where
    ended = until_ended(database, [], rest)
    intervals = request_intervals(parameters, began if of_requests else "", ended).where
    requests = operation_sums.requests_from(began, intervals)
    return [
        operation_sums.of_samples(f"time {from_start}", spans, samples.where),
        operation_sums.of_intervals(f"start_time {from_start}", began),
        operation_sums.of_requests(f"start_time {from_start}", requests),
    ]


def _joined(ranges: Sequence[TimeRange]) -> list[TimeRange]:
    """Joins ranges that follow each other without a gap. They are in order."""
    joined: list[TimeRange] = []
    for each in ranges:
        if joined and joined[-1].end_unix_nano == each.start_unix_nano:
            each = TimeRange(joined.pop().start_unix_nano, each.end_unix_nano)
        joined.append(each)
    return joined


def split_operation(database: Database, matchers: tuple[Matcher, ...]) -> tuple[list[Matcher], list[Matcher]]:
    """Returns the matchers of the operation, and of the service and labels of requests. Raises ApiError for others."""
    of_operation, others = split_matchers(matchers)
    if unknown := sorted({matcher.label for matcher in others} - {"service", *database.request_labels}):
        raise bad_request("bad_selector", f"requests have no label {unknown[0]}", _hint(database))
    return of_operation, others


def check_groups(database: Database, by: Sequence[str]) -> None:
    """Raises ApiError where requests do not have one of these labels."""
    for label in by:
        if label not in database.request_labels:
            raise bad_request("bad_parameter", f"requests have no label {label}", _hint(database))


def _hint(database: Database) -> str:
    labels = ", ".join(("service", OPERATION, *database.request_labels))
    return (
        f"they have {labels}; ICESTREAM_REQUEST_LABELS says which others; for any label:"
        " /api/v1/timeline?sum_by=service,operation"
    )


def operation_labels(database: Database) -> set[str]:
    """The labels that operations are selected by."""
    return {OPERATION, "service", *database.request_labels}


def without_other_labels(database: Database, matchers: Sequence[Matcher]) -> tuple[tuple[Matcher, ...], list[str]]:
    """Returns the matchers that operations are selected by, and the labels of the others, which samples have. Raises
    ApiError."""
    known = operation_labels(database)
    kept = tuple(matcher for matcher in matchers if matcher.label in known)
    others = sorted({matcher.label for matcher in matchers} - known)
    for label in set(others) - set(REQUEST_LABELS):
        if not database.table(
            "SELECT 1 FROM series WHERE mapContains(labels, {label:String}) LIMIT 1", {"label": label}
        ):
            hint = "completions of the selector, and /api/v1/labels, list the labels"
            raise bad_request("bad_selector", f"no samples have a label {label!r}", hint)
    return kept, others


def request_conditions(parameters: dict[str, Any], matchers: list[Matcher], ranges: Sequence[TimeRange]) -> Conditions:
    """Conditions on `activity` and `entry_spans`, which begin in these time ranges."""
    added = Conditions(parameters=parameters)
    add_times(added, ranges, "start_time")
    of_operation, others = split_matchers(matchers)
    add_request_matchers(added, others)
    for matcher in of_operation:
        add_value_matcher(added, "operation", matcher)
    return added


def request_intervals(parameters: dict[str, Any], requests: str, ended: Sequence[TimeRange]) -> Conditions:
    """Conditions on `activity` for the intervals of requests, of all services: their names for one request may differ.

    `requests`: WHERE ... of rows of `entry_spans`; '': of all. `ended`: the time ranges until they have ended.
    """
    intervals = request_conditions(parameters, [], ended)
    if requests:
        intervals.add(f"trace_id IN (SELECT trace_id FROM entry_spans {requests})")
    return intervals


def until_ended(database: Database, matchers: list[Matcher], ranges: Sequence[TimeRange]) -> list[TimeRange]:
    """Extends time ranges to when the requests that begin in them have ended. Raises ApiError."""
    began = request_conditions({}, matchers, ranges)
    answer = database.table(f"SELECT max(duration_ns) AS longest FROM entry_spans {began.where}", began.parameters)
    longest = max(min(answer["longest"][0].as_py(), _LONGEST_NS), _AFTER_NS)
    return [TimeRange(each.start_unix_nano, each.end_unix_nano + longest) for each in ranges]


def _rows(answer: pa.Table, profile_type: str, by: Sequence[str]) -> list[dict[str, Any]]:
    services, operations = texts(answer["of"]), texts(answer["op"])
    groups = [f"by{number}" for number in range(len(by))]
    labels = zip(*(texts(answer[name]) for name in groups), strict=True) if by else [()] * len(services)
    sampled = sampled_rows(answer.rename_columns({"sampled_cpu_ns": "sampled_cpu"}))
    periods: dict[str, float] = {}
    for service, each in zip(services, sampled, strict=True):
        periods[service] = max(periods.get(service, 0.0), each.longest_period)
    columns = answer.drop(["of", "op", "squares", "longest_period", *groups]).to_pylist()
    rows = []
    for row, service, operation, values_of, each in zip(columns, services, operations, labels, sampled, strict=True):
        row |= each.as_json(periods[service], profile_type)
        for prefix in ("", "previous_"):
            if not row[f"{prefix}requests"]:  # those that still run are only in `recent_operations`
                row |= {f"{prefix}{name}": 0 for name in _OF_MEASURED}
        for what in ("cpu", "duration"):
            quantiles = row.pop(f"{what}_quantiles")
            values = (row[f"mean_{what}_ns"], *quantiles)
            for name, value in zip(("mean", *_PERCENTILES), values, strict=True):
                row[f"{name}_{what}_ns"] = round(value) if row["requests"] and math.isfinite(value) else None
        of_row = {name: value for name, value in zip(by, values_of, strict=True) if value}
        rows.append({"service": service, "operation": operation, "labels": of_row} | row)
    return rows
