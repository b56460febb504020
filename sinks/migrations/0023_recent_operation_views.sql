-- The views of migration 22 at about half of their CPU. Rows are summed up by minute only, and stored twice; those of
-- ten minutes are merged from them. And a hash of 64 bits is made faster than one of 128: that it is the same for two
-- requests in one block of a million rows happens once in forty million blocks; then their CPU counts as that of one.
-- Rows that the table would drop at once, such as those of a backfill, are left out: to sum them up took as long as to
-- store them. A block that is sent again after the views changed may be summed up twice.
ALTER TABLE recent_intervals_view MODIFY QUERY
SELECT service, operation, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    traces, thread_cpu_ns, measured, request_cpu_ns, cpu, heaviest
FROM
(
    SELECT of AS service, op AS operation, minute, count() AS traces, sum(used) AS thread_cpu_ns,
        countIf(is_request) AS measured, sumIf(used, is_request) AS request_cpu_ns,
        quantilesDDStateIf(0.01, 0.5, 0.95, 0.99)(toFloat64(used), is_request) AS cpu,
        groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(used)), 128),
            toUInt256(reinterpretAsUInt128(trace)))) AS heaviest
    FROM
    (
        SELECT any(service) AS of, any(operation) AS op, any(toStartOfMinute(start_time)) AS minute,
            any(trace_id) AS trace, any(entry_span_id) != toFixedString('', 8) AS is_request, sum(thread_cpu_ns) AS used
        FROM activity
        WHERE start_time >= now() - INTERVAL 3 DAY
        GROUP BY cityHash64(service, operation, toStartOfMinute(start_time), trace_id, entry_span_id)
    )
    GROUP BY of, op, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes;

ALTER TABLE recent_requests_view MODIFY QUERY
SELECT service, operation, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    requests, request_duration_ns, duration
FROM
(
    SELECT service, operation, toStartOfMinute(start_time) AS minute, count() AS requests,
        sum(lasted) AS request_duration_ns, quantilesDDState(0.01, 0.5, 0.95, 0.99)(toFloat64(lasted)) AS duration
    FROM
    (
        SELECT service, operation, start_time,
            toUInt64(greatest(toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time), 0)) AS lasted
        FROM spans
        WHERE operation != '' AND start_time >= now() - INTERVAL 3 DAY
    )
    GROUP BY service, operation, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes;

ALTER TABLE recent_samples_view MODIFY QUERY
SELECT profile_type, service, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    count() AS traces,
    groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(toUInt64(used))), 128),
        toUInt256(reinterpretAsUInt128(trace_id)))) AS heaviest
FROM
(
    SELECT profile_type, service, toStartOfMinute(time) AS minute, trace_id, greatest(sum(value), 0) AS used
    FROM samples
    WHERE time >= now() - INTERVAL 3 DAY AND trace_id != toFixedString('', 16)
    GROUP BY profile_type, service, minute, trace_id
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes
GROUP BY profile_type, service, minutes, start_time;
