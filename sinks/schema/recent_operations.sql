-- What operations did in each minute, as it was stored, block by block: for questions about so many requests that their
-- rows cannot all be read (docs/storage.md, "Recent operations"). A few days are kept. All is there three times, by
-- minute, by ten minutes and by hour, so that a query merges few. What is of samples has a profile type; what is
-- of requests and intervals has the profile type ''.
CREATE TABLE IF NOT EXISTS recent_operations
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    operation    LowCardinality(String) CODEC(ZSTD(1)),
    request_labels LowCardinality(String) CODEC(ZSTD(1)),
    minutes      UInt8 CODEC(ZSTD(1)),                     -- 1, 10 or 60
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    traces         SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- with CPU, once for each block
    thread_cpu_ns  SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),        -- of intervals, where they began
    requests       SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- that have ended, where they began
    measured       SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- likewise, known requests
    errors         SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- requests that ended with an error
    request_cpu_ns SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),        -- of `measured`
    request_duration_ns SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    request_cpu_squares SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),  -- as in operation_hours
    request_duration_squares SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),
    cpu      AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),   -- of each of `measured`
    duration AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),
    -- The traces with the most CPU in one block: its nanoseconds, inverted, in the upper 64 of 192 bits, so that the
    -- smallest numbers have the most; below, the trace ID. ClickHouse sorts tuples six times more slowly.
    heaviest AggregateFunction(groupArraySorted(20), UInt256) CODEC(ZSTD(1)),
    count          SimpleAggregateFunction(sum, Int64) CODEC(T64, ZSTD(1)),    -- of samples, in their own time
    value          SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
    squares        SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),       -- as in operation_hours
    longest_period SimpleAggregateFunction(max, Float64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(start_time)
ORDER BY (minutes, profile_type, start_time, service, operation, request_labels)
TTL toDateTime(start_time) + INTERVAL 3 DAY
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 512, ttl_only_drop_parts = 1;

-- The views sum up rows by minute only, and store them three times; those of ten minutes and hours are merged from them.
-- Rows that the table would drop at once, such as those of a backfill, are left out: to sum them up took as long as to
-- store them. That the hash of 64 bits is the same for two requests in one block of a million rows happens once in forty
-- million blocks; then their CPU counts as that of one.
CREATE MATERIALIZED VIEW IF NOT EXISTS recent_intervals_view TO recent_operations AS
SELECT service, operation, request_labels, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    traces, thread_cpu_ns, measured, request_cpu_ns, request_cpu_squares, cpu, heaviest
FROM
(
    SELECT of AS service, op AS operation, labels AS request_labels, minute, count() AS traces,
        sum(used) AS thread_cpu_ns,
        countIf(is_request) AS measured, sumIf(used, is_request) AS request_cpu_ns,
        sumIf(toFloat64(used) * used, is_request) AS request_cpu_squares,
        quantilesDDStateIf(0.01, 0.5, 0.95, 0.99)(toFloat64(used), is_request) AS cpu,
        groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(used)), 128),
            toUInt256(reinterpretAsUInt128(trace)))) AS heaviest
    FROM
    (
        SELECT any(service) AS of, any(operation) AS op, any(request_labels) AS labels,
            any(toStartOfMinute(start_time)) AS minute, any(trace_id) AS trace,
            any(entry_span_id) != toFixedString('', 8) AS is_request, sum(thread_cpu_ns) AS used
        FROM activity
        WHERE start_time >= now() - INTERVAL 3 DAY
        GROUP BY cityHash64(service, operation, request_labels, toStartOfMinute(start_time), trace_id, entry_span_id)
    )
    GROUP BY of, op, labels, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;

CREATE MATERIALIZED VIEW IF NOT EXISTS recent_requests_view TO recent_operations AS
SELECT service, operation, request_labels, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    requests, errors, request_duration_ns, request_duration_squares, duration
FROM
(
    SELECT service, operation, request_labels, toStartOfMinute(start_time) AS minute, count() AS requests,
        countIf(status = 'error') AS errors, sum(lasted) AS request_duration_ns,
        sum(toFloat64(lasted) * lasted) AS request_duration_squares,
        quantilesDDState(0.01, 0.5, 0.95, 0.99)(toFloat64(lasted)) AS duration
    FROM
    (
        SELECT service, operation, request_labels, status, start_time,
            toUInt64(greatest(toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time), 0)) AS lasted
        FROM spans
        WHERE operation != '' AND start_time >= now() - INTERVAL 3 DAY
    )
    GROUP BY service, operation, request_labels, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;

-- The heaviest traces of a service by their samples, whatever operations they belong to: without an operation.
CREATE MATERIALIZED VIEW IF NOT EXISTS recent_samples_view TO recent_operations AS
SELECT profile_type, service, request_labels, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    count() AS traces,
    groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(toUInt64(used))), 128),
        toUInt256(reinterpretAsUInt128(trace_id)))) AS heaviest
FROM
(
    SELECT profile_type, service, request_labels, toStartOfMinute(time) AS minute, trace_id,
        greatest(sum(value), 0) AS used
    FROM samples
    WHERE time >= now() - INTERVAL 3 DAY AND trace_id != toFixedString('', 16)
    GROUP BY profile_type, service, request_labels, minute, trace_id
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes
GROUP BY profile_type, service, request_labels, minutes, start_time;

-- With these, the samples of a service are those of its operations and of none, at any time.
CREATE MATERIALIZED VIEW IF NOT EXISTS recent_sample_sums_view TO recent_operations AS
SELECT profile_type, service, operation, request_labels, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    c AS count, v AS value, sq AS squares, longest AS longest_period
FROM
(
    SELECT profile_type, service, known_operation AS operation, request_labels, toStartOfMinute(time) AS minute,
        toInt64(sum(count)) AS c, sum(value) AS v, toFloat64(sumIf(value / count * value, count > 0)) AS sq,
        toFloat64(maxIf(value / count, count > 0)) AS longest
    FROM samples
    WHERE time >= now() - INTERVAL 3 DAY
    GROUP BY profile_type, service, operation, request_labels, minute
)
ARRAY JOIN [toUInt8(1), toUInt8(10), toUInt8(60)] AS minutes;
