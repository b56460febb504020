-- What operations did in each minute, as it was stored, block by block: for questions about so many requests that their
-- rows cannot all be read (docs/storage.md, "Recent operations"). A few days are kept. All is there twice, by minute and
-- by ten minutes, of which a query has to merge a tenth. What is of samples has a profile type and no operation; what is
-- of requests and intervals has the profile type ''.
CREATE TABLE IF NOT EXISTS recent_operations
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    operation    LowCardinality(String) CODEC(ZSTD(1)),
    minutes      UInt8 CODEC(ZSTD(1)),                     -- 1 or 10
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    traces         SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- with CPU, once for each block
    thread_cpu_ns  SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),        -- of intervals, where they began
    requests       SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- that have ended, where they began
    measured       SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),   -- likewise, known requests
    request_cpu_ns SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),        -- of these
    request_duration_ns SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    cpu      AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),   -- of each of `measured`
    duration AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),
    -- The traces with the most CPU in one block: its nanoseconds, inverted, in the upper 64 of 192 bits, so that the
    -- smallest numbers have the most; below, the trace ID. ClickHouse sorts tuples six times more slowly.
    heaviest AggregateFunction(groupArraySorted(20), UInt256) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(start_time)
ORDER BY (minutes, profile_type, start_time, service, operation)
TTL toDateTime(start_time) + INTERVAL 3 DAY
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 512, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS recent_intervals_view TO recent_operations AS
SELECT of AS service, op AS operation, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    count() AS traces, sum(used) AS thread_cpu_ns, countIf(is_request) AS measured, sumIf(used, is_request) AS request_cpu_ns,
    quantilesDDStateIf(0.01, 0.5, 0.95, 0.99)(toFloat64(used), is_request) AS cpu,
    groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(used)), 128),
        toUInt256(reinterpretAsUInt128(trace)))) AS heaviest
FROM
(
    SELECT any(service) AS of, any(operation) AS op, any(toStartOfMinute(start_time)) AS minute, any(trace_id) AS trace,
        any(entry_span_id) != toFixedString('', 8) AS is_request, sum(thread_cpu_ns) AS used
    FROM activity
    -- A hash takes half as long as the columns.
    GROUP BY sipHash128(service, operation, toStartOfMinute(start_time), trace_id, entry_span_id)
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes
GROUP BY service, operation, minutes, start_time;

CREATE MATERIALIZED VIEW IF NOT EXISTS recent_requests_view TO recent_operations AS
SELECT service, operation, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    count() AS requests, sum(lasted) AS request_duration_ns,
    quantilesDDState(0.01, 0.5, 0.95, 0.99)(toFloat64(lasted)) AS duration
FROM
(
    SELECT service, operation, toStartOfMinute(start_time) AS minute,
        toUInt64(greatest(toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time), 0)) AS lasted
    FROM spans
    WHERE operation != ''
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes
GROUP BY service, operation, minutes, start_time;

CREATE MATERIALIZED VIEW IF NOT EXISTS recent_samples_view TO recent_operations AS
SELECT profile_type, service, minutes,
    toDateTime(intDiv(toUnixTimestamp(minute), 60 * minutes) * 60 * minutes, 'UTC') AS start_time,
    count() AS traces,
    groupArraySortedState(20)(bitOr(bitShiftLeft(toUInt256(bitNot(toUInt64(used))), 128),
        toUInt256(reinterpretAsUInt128(trace_id)))) AS heaviest
FROM
(
    SELECT profile_type, service, toStartOfMinute(time) AS minute, trace_id, greatest(sum(value), 0) AS used
    FROM samples
    WHERE trace_id != toFixedString('', 16)
    GROUP BY profile_type, service, minute, trace_id
)
ARRAY JOIN [toUInt8(1), toUInt8(10)] AS minutes
GROUP BY profile_type, service, minutes, start_time;
