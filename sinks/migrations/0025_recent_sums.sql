-- `recent_operations` gets the sums of samples as well, so that the samples of a service are those of its operations and
-- of none, at any time; and all is there three times, by minute, by ten minutes and by hour.

-- The operation of a sample as far as it was known when it was stored: by activity that streams had read, or by the label
-- of its series. It is '' in rows of jobs and of before this column. Queries of rows look into `span_operations` instead.
ALTER TABLE samples
    ADD COLUMN IF NOT EXISTS known_operation LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE recent_operations
    ADD COLUMN IF NOT EXISTS count          SimpleAggregateFunction(sum, Int64) CODEC(T64, ZSTD(1)),  -- of samples, in their own time
    ADD COLUMN IF NOT EXISTS value          SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS squares        SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),     -- as in operation_minutes
    ADD COLUMN IF NOT EXISTS longest_period SimpleAggregateFunction(max, Float64) CODEC(ZSTD(1));

-- Beside `recent_samples_view`, which lists the heaviest traces of a service, whatever operations they belong to.
CREATE MATERIALIZED VIEW IF NOT EXISTS recent_sample_sums_view TO recent_operations AS
SELECT profile_type, service, operation, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    c AS count, v AS value, sq AS squares, longest AS longest_period
FROM
(
    SELECT profile_type, service, known_operation AS operation, toStartOfMinute(time) AS minute,
        toInt64(sum(count)) AS c, sum(value) AS v, toFloat64(sumIf(value / count * value, count > 0)) AS sq,
        toFloat64(maxIf(value / count, count > 0)) AS longest
    FROM samples
    WHERE time >= now() - INTERVAL 3 DAY
    GROUP BY profile_type, service, operation, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;

-- As in migration 23, but for the hours.
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
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;

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
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;
