"""SELECTs of the sums of operations, from rows and from rollups, for queries and for the rollups themselves.

All have the columns of KEYS and SUMS, so that UNION ALL joins them. `at` is an SQL expression by which they group: of a
sample's `time`, of an interval's and a request's `start_time`. It becomes the column `at_`.
"""

from icestream.clickhouse.span_operations import OPERATION_OF_SAMPLE, samples_with_operations

QUANTILES = "0.01, 0.5, 0.95, 0.99"
"""The arguments of quantilesDD: the largest relative error, and the quantiles. Its sketches can be merged."""
KEYS = {"profile_type": "of_type", "service": "of", "operation": "op", "request_labels": "labels_"}
"""Columns of rollups -> those of the SELECTs. The profile type is '' for what is of requests and intervals."""
SUMS = {
    "count": "c", "value": "v", "squares": "sq", "longest_period": "longest", "thread_cpu_ns": "w", "requests": "n",
    "measured": "measured_", "errors": "failed", "request_cpu_ns": "cpu_sum", "request_duration_ns": "duration_sum",
    "request_cpu_squares": "cpu_sq", "request_duration_squares": "duration_sq", "cpu": "cpu_", "duration": "duration_",
}  # fmt: skip
"""Likewise. `measured`: requests of which a clock measured CPU; `cpu` and `duration`: sketches of their values."""
_SKETCHES = ("cpu_", "duration_")
_MERGE = dict.fromkeys(_SKETCHES, f"quantilesDDMergeState({QUANTILES})") | {"longest": "max"}
"""How several rows become one, by the names of SUMS; others are added up."""
MERGED = ", ".join(f"{_MERGE.get(name, 'sum')}({name})" for name in SUMS.values())
"""SUMS of several rows."""
_NO_SAMPLES = "toInt64(0) AS c, toInt64(0) AS v, toFloat64(0) AS sq, toFloat64(0) AS longest"
_NO_SKETCHES = f"""quantilesDDStateIf({QUANTILES})(toFloat64(0), 0) AS cpu_,
    quantilesDDStateIf({QUANTILES})(toFloat64(0), 0) AS duration_"""
_NO_REQUESTS = f"""toUInt64(0) AS n, toUInt64(0) AS measured_, toUInt64(0) AS failed, toUInt64(0) AS cpu_sum,
    toUInt64(0) AS duration_sum, toFloat64(0) AS cpu_sq, toFloat64(0) AS duration_sq, {_NO_SKETCHES}"""
_OF = "toString(service) AS of, toString(operation) AS op, toString(request_labels) AS labels_"
_OF_NO_TYPE = f"'' AS of_type, {_OF}"
_OF_SAMPLES = f"""
SELECT toString(profile_type) AS of_type, toString(service) AS of, {OPERATION_OF_SAMPLE} AS op,
    toString(request_labels) AS labels_, {{at}} AS at_,
    toInt64(sum(count)) AS c, sum(value) AS v, toFloat64(sumIf(value / count * value, count > 0)) AS sq,
    toFloat64(maxIf(value / count, count > 0)) AS longest, toUInt64(0) AS w, {_NO_REQUESTS}
FROM {{samples}} {{where}}
GROUP BY of_type, of, op, labels_, at_"""
_OF_INTERVALS = f"""
SELECT {_OF_NO_TYPE}, {{at}} AS at_, {_NO_SAMPLES}, sum(thread_cpu_ns) AS w, {_NO_REQUESTS}
FROM activity {{where}} GROUP BY of, op, labels_, at_"""
_OF_RECENT = f"""
SELECT {_OF_NO_TYPE}, {{at}} AS at_, {_NO_SAMPLES},
    toUInt64(thread_cpu_ns) AS w, toUInt64(requests) AS n, toUInt64(measured) AS measured_,
    toUInt64(errors) AS failed, toUInt64(request_cpu_ns) AS cpu_sum, toUInt64(request_duration_ns) AS duration_sum,
    toFloat64(request_cpu_squares) AS cpu_sq, toFloat64(request_duration_squares) AS duration_sq, cpu AS cpu_,
    duration AS duration_
FROM recent_operations {{where}}"""
_OF_RECENT_SAMPLES = f"""
SELECT toString(profile_type) AS of_type, {_OF}, {{at}} AS at_,
    sum(count) AS c, sum(value) AS v, sum(squares) AS sq, max(longest_period) AS longest, toUInt64(0) AS w,
    {_NO_REQUESTS}
FROM recent_operations {{where}}
GROUP BY of_type, of, op, labels_, at_
HAVING c != 0 OR v != 0 OR longest > 0"""  # a row without an operation may only list traces
_OF_REQUESTS = f"""
SELECT {_OF_NO_TYPE}, {{at}} AS at_, {_NO_SAMPLES},
    toUInt64(0) AS w, count() AS n, countIf(intervals > 0) AS measured_, countIf(is_error) AS failed,
    sum(request_cpu) AS cpu_sum, sum(duration_ns) AS duration_sum, sum(toFloat64(request_cpu) * request_cpu) AS cpu_sq,
    sum(toFloat64(duration_ns) * duration_ns) AS duration_sq,
    quantilesDDStateIf({QUANTILES})(toFloat64(request_cpu), intervals > 0) AS cpu_,
    quantilesDDState({QUANTILES})(toFloat64(duration_ns)) AS duration_
FROM {{requests}} GROUP BY of, op, labels_, at_"""
_REQUESTS = """
(
    SELECT service, trace_id, span_id, argMax(named, (lasted, toString(named))) AS operation, min(began) AS start_time,
        max(lasted) AS duration_ns, max(failed) AS is_error,
        max(labels) AS request_labels
    FROM
    (
        SELECT service, trace_id, span_id, operation AS named, start_time AS began, duration_ns AS lasted,
            status = 'error' AS failed, toString(request_labels) AS labels
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


def of_samples(at: str, spans: str, where: str) -> str:
    """`spans`: a SELECT of the operations of the samples' spans (`select_span_operations`)."""
    return _OF_SAMPLES.format(at=at, samples=samples_with_operations(spans), where=where)


def of_intervals(at: str, where: str) -> str:
    return _OF_INTERVALS.format(at=at, where=where)


def of_requests(at: str, requests: str) -> str:
    """`requests`: what to select from, as of `requests_from`."""
    return _OF_REQUESTS.format(at=at, requests=requests)


def requests_from(where: str, intervals: str) -> str:
    """Returns what to select requests from, each once: `operation`, `duration_ns`, `is_error`, `request_labels` and
    `request_cpu`, and `intervals`, which is 0 if no clock measured its CPU.

    `where`: WHERE ... of rows of `entry_spans`, `intervals`: of `activity`.
    """
    return _REQUESTS.format(where=where, intervals=intervals)


def of_recent(at: str, where: str) -> str:
    """What was summed up as it was stored, of requests and intervals. `where`: WHERE ... of rows of `recent_operations`
    of no profile type."""
    return _OF_RECENT.format(at=at, where=where)


def of_recent_samples(at: str, where: str) -> str:
    """Likewise, of samples. `where`: of rows of profile types."""
    return _OF_RECENT_SAMPLES.format(at=at, where=where)


def of_rollups(table: str, at: str, where: str) -> str:
    """Rows of rollups, as they are."""
    keys = ", ".join(f"toString({column}) AS {name}" for column, name in KEYS.items())
    sums = ", ".join(f"{column} AS {name}" for column, name in SUMS.items())
    return f"\nSELECT {keys}, {at} AS at_, {sums} FROM {table} {where}"


def without_sketches(rows: str) -> str:
    """The sums of such a SELECT without percentiles: reading the sketches would take most of the time."""
    sums = ", ".join(
        f"{_MERGE.get(name, 'sum')}(of_rows.{name}) AS {name}" for name in SUMS.values() if name not in _SKETCHES
    )
    return (
        f"\nSELECT of_type, of, op, labels_, at_, {sums}, {_NO_SKETCHES} FROM ({rows}) AS of_rows"
        " GROUP BY of_type, of, op, labels_, at_"
    )
