"""The operations of services: how many requests they had, and what these used."""

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from api.errors import bad_request, too_large
from api.queries.conditions import Conditions, add_matchers, add_time, add_value_matcher
from api.queries.confidence import sampled_rows
from api.queries.database import Database, texts
from api.queries.sample_operations import OPERATION, split_matchers, with_operations
from api.queries.selection import Selection, TimeRange
from api.queries.selector import Matcher
from icestream.times import DAY_NS, HOUR_NS

_QUANTILES = "0.01, 0.5, 0.95, 0.99"
"""Of quantilesDD: the largest relative error, and which ones. Its sketches can be merged."""
_PERCENTILES = ("p50", "p95", "p99")
_AFTER_NS, _LONGEST_NS = HOUR_NS, DAY_NS
"""What is read after the time range for requests that began in it: at least, and at most (a span lasts 23 hours at
most, gateway/readers/otlp_spans.py)."""
_MAX_OPERATIONS = 100_000

_SQL = f"""
SELECT of, op, ({{matches}}) AS matches, sum(c) AS samples, sum(sq) AS squares, max(longest) AS longest_period,
    sum(v) AS sampled_cpu_ns, sum(pv) AS previous_sampled_cpu_ns,
    toInt64(sum(w)) AS thread_cpu_ns, toInt64(sum(pw)) AS previous_thread_cpu_ns,
    toInt64(sum(n)) AS requests, toInt64(sum(pn)) AS previous_requests,
    sum(cpu_sum) / sum(measured) AS mean_cpu_ns, sum(duration_sum) / requests AS mean_duration_ns,
    quantilesDDMerge({_QUANTILES})(cpu) AS cpu_quantiles, quantilesDDMerge({_QUANTILES})(duration) AS duration_quantiles
FROM ({{parts}})
GROUP BY of, op
LIMIT {_MAX_OPERATIONS + 1}"""
REQUESTS = """
(
    SELECT service, trace_id, span_id, argMax(named, lasted) AS operation, min(began) AS start_time,
        max(lasted) AS duration_ns
    FROM
    (
        SELECT service, trace_id, span_id, operation AS named, start_time AS began, duration_ns AS lasted
        FROM entry_spans {where}
    )
    GROUP BY service, trace_id, span_id
) AS entries
LEFT ANY JOIN
(
    SELECT trace_id, entry_span_id AS span_id, sum(thread_cpu_ns) AS request_cpu, count() AS intervals
    FROM activity {intervals}
    GROUP BY trace_id, entry_span_id
) AS used USING (trace_id, span_id)"""
"""Requests with `duration_ns` and `request_cpu`, each once. Without `intervals`, no clock measured it."""
_NO_REQUESTS = f"""toUInt64(0) AS n, toUInt64(0) AS pn, toUInt64(0) AS measured,
    toUInt64(0) AS cpu_sum, toUInt64(0) AS duration_sum,
    quantilesDDStateIf({_QUANTILES})(toFloat64(0), 0) AS cpu,
    quantilesDDStateIf({_QUANTILES})(toFloat64(0), 0) AS duration"""
_NO_SAMPLES = "toInt64(0) AS c, toFloat64(0) AS sq, toFloat64(0) AS longest"
_SAMPLES = f"""
SELECT toString(service) AS of, toString(operation) AS op, sumIf(value, {{now}}) AS v, sumIf(value, NOT {{now}}) AS pv,
    toInt64(sumIf(count, {{now}})) AS c, toFloat64(sumIf(value / count * value, {{now}} AND count > 0)) AS sq,
    toFloat64(maxIf(value / count, {{now}} AND count > 0)) AS longest,
    toUInt64(0) AS w, toUInt64(0) AS pw, {_NO_REQUESTS}
FROM {{table}} {{where}} GROUP BY of, op"""
_INTERVALS = f"""
SELECT toString(service) AS of, toString(operation) AS op, toInt64(0) AS v, toInt64(0) AS pv, {_NO_SAMPLES},
    sumIf(thread_cpu_ns, {{now}}) AS w, sumIf(thread_cpu_ns, NOT {{now}}) AS pw, {_NO_REQUESTS}
FROM activity {{where}} GROUP BY of, op"""
_REQUESTS = f"""
SELECT toString(service) AS of, toString(operation) AS op, toInt64(0) AS v, toInt64(0) AS pv, {_NO_SAMPLES},
    toUInt64(0) AS w, toUInt64(0) AS pw, countIf({{now}}) AS n, countIf(NOT {{now}}) AS pn,
    countIf({{now}} AND intervals > 0) AS measured,
    sumIf(request_cpu, {{now}}) AS cpu_sum, sumIf(duration_ns, {{now}}) AS duration_sum,
    quantilesDDStateIf({_QUANTILES})(toFloat64(request_cpu), {{now}} AND intervals > 0) AS cpu,
    quantilesDDStateIf({_QUANTILES})(toFloat64(duration_ns), {{now}}) AS duration
FROM {{requests}}
GROUP BY of, op"""


@dataclass(frozen=True)
class Operations:
    """Of services with requests: their operations, and what belongs to none. Together these are all samples."""

    all: list[dict[str, Any]]
    """A row whose operation is "" has what belongs to none. `matches`: the matchers of the operation do."""

    @property
    def matching(self) -> list[dict[str, Any]]:
        return [row for row in self.all if row["operation"] and row["matches"]]

    @property
    def unattributed(self) -> list[dict[str, Any]]:
        """A row for each service that has some."""
        return [row for row in self.all if not row["operation"]]


def read_operations(database: Database, selection: Selection) -> Operations:
    """Those of the services that match, in any order. Raises ApiError.

    Requests count where they began; samples and thread CPU where they were. What is `previous_` is of a period as long
    as the time range, which ends where that starts.
    """
    of_operation, of_service = split_operation(selection.matchers)
    time_range = selection.time_range
    length = time_range.end_unix_nano - time_range.start_unix_nano
    both = TimeRange(max(0, time_range.start_unix_nano - length), time_range.end_unix_nano)
    conditions = Conditions()
    start = f"fromUnixTimestamp64Milli({conditions.bind(time_range.start_unix_nano // 10**6, 'Int64')}, 'UTC')"
    ranges = [(both.start_unix_nano, both.end_unix_nano)]
    samples = Selection(selection.profile_type, tuple(of_service), both).of_any_request(ranges, conditions.parameters)
    table = with_operations(samples, ranges, of_service)
    activity = request_conditions(conditions.parameters, of_service, both)
    intervals = request_conditions(conditions.parameters, of_service, until_ended(database, of_service, time_range))
    parts = [
        _SAMPLES.format(now=f"time >= {start}", table=table, where=samples.where),
        _INTERVALS.format(now=f"start_time >= {start}", where=activity.where),
        _REQUESTS.format(
            now=f"start_time >= {start}", requests=REQUESTS.format(where=activity.where, intervals=intervals.where)
        ),
    ]
    matches = Conditions(parameters=conditions.parameters)
    for matcher in of_operation:
        add_value_matcher(matches, "op", matcher)
    sql = _SQL.format(matches=" AND ".join(matches.expressions) or "1", parts=" UNION ALL ".join(parts))
    answer = database.table(sql, conditions.parameters)
    if len(answer) > _MAX_OPERATIONS:
        raise too_large(f"more than {_MAX_OPERATIONS} operations", "select fewer services, or a shorter time range")
    rows = _rows(answer, selection.profile_type)
    traced = {row["service"] for row in rows if row["operation"] or row["thread_cpu_ns"]}
    return Operations([row for row in rows if row["service"] in traced])


def split_operation(matchers: tuple[Matcher, ...]) -> tuple[list[Matcher], list[Matcher]]:
    """Returns the matchers of the operation and of the service. Raises ApiError for others."""
    of_operation, others = split_matchers(matchers)
    if any(matcher.label != "service" for matcher in others):
        raise bad_request(
            "bad_selector",
            "operations are selected by service and operation only",
            'for example {service="shop"}; for other labels: /api/v1/timeline?sum_by=service,operation',
        )
    return of_operation, others


def request_conditions(parameters: dict[str, Any], matchers: list[Matcher], time_range: TimeRange) -> Conditions:
    """Conditions on `activity` and `entry_spans`, which begin in a time range."""
    added = Conditions(parameters=parameters)
    add_time(added, time_range.start_unix_nano, time_range.end_unix_nano, "start_time")
    add_matchers(added, [matcher for matcher in matchers if matcher.label != OPERATION])
    for matcher in matchers:
        if matcher.label == OPERATION:
            add_value_matcher(added, "operation", matcher)
    return added


def until_ended(database: Database, matchers: list[Matcher], time_range: TimeRange) -> TimeRange:
    """Until the requests that begin in a time range have ended. Raises ApiError."""
    began = request_conditions({}, matchers, time_range)
    answer = database.table(f"SELECT max(duration_ns) AS longest FROM entry_spans {began.where}", began.parameters)
    longest = min(answer["longest"][0].as_py(), _LONGEST_NS)
    return TimeRange(time_range.start_unix_nano, time_range.end_unix_nano + max(longest, _AFTER_NS))


def _rows(answer: pa.Table, profile_type: str) -> list[dict[str, Any]]:
    services, operations = texts(answer["of"]), texts(answer["op"])
    sampled = sampled_rows(answer.rename_columns({"sampled_cpu_ns": "sampled_cpu"}))
    periods: dict[str, float] = {}
    for service, each in zip(services, sampled, strict=True):
        periods[service] = max(periods.get(service, 0.0), each.longest_period)
    columns = answer.drop(["of", "op", "squares", "longest_period"]).to_pylist()
    rows = []
    for row, service, operation, each in zip(columns, services, operations, sampled, strict=True):
        row |= each.as_json(periods[service], profile_type)
        for what in ("cpu", "duration"):
            quantiles = row.pop(f"{what}_quantiles")
            values = (row[f"mean_{what}_ns"], *quantiles)
            for name, value in zip(("mean", *_PERCENTILES), values, strict=True):
                row[f"{name}_{what}_ns"] = round(value) if row["requests"] and math.isfinite(value) else None
        rows.append({"service": service, "operation": operation} | row)
    return rows
