-- The operation of each span that had CPU: with it, queries find the operation of a sample, by its trace and span. A span
-- has a row for each hour in which it had CPU. The table is a set: what comes twice changes nothing.
CREATE TABLE IF NOT EXISTS span_operations
(
    service       LowCardinality(String) CODEC(ZSTD(1)),
    start_time    DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),   -- of its last interval that had this operation
    trace_id      FixedString(16) CODEC(ZSTD(1)),
    span_id       FixedString(8) CODEC(ZSTD(1)),
    operation     LowCardinality(String) CODEC(ZSTD(1)),
    entry_span_id FixedString(8) CODEC(ZSTD(1)),                -- with the trace: the request
    host_id       LowCardinality(String) CODEC(ZSTD(1)),
    -- Within a service and an hour, rows are in the order of their traces, which the primary key does not know. With the
    -- index, a query of a range of traces reads a few of its granules: builds of operations and thinning divide their work
    -- by traces.
    INDEX traces trace_id TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(start_time)
PARTITION BY toDate(start_time)
PRIMARY KEY (service, toStartOfHour(start_time))
ORDER BY (service, toStartOfHour(start_time), trace_id, span_id);

CREATE MATERIALIZED VIEW IF NOT EXISTS span_operations_view TO span_operations AS
SELECT service, last_time AS start_time, trace_id, span_id, last_operation AS operation, entry AS entry_span_id,
    any_host AS host_id
FROM
(
    SELECT service, trace_id, span_id, max(start_time) AS last_time,
        argMax(operation, (start_time, operation)) AS last_operation, any(entry_span_id) AS entry,
        any(host_id) AS any_host
    FROM activity
    WHERE operation != ''
    GROUP BY service, trace_id, span_id, toStartOfHour(start_time)
);

-- Requests of operations: the entry spans, ordered by service and time.
CREATE TABLE IF NOT EXISTS entry_spans
(
    service     LowCardinality(String) CODEC(ZSTD(1)),
    start_time  DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id    FixedString(16) CODEC(ZSTD(1)),
    span_id     FixedString(8) CODEC(ZSTD(1)),
    operation   LowCardinality(String) CODEC(ZSTD(1)),
    duration_ns UInt64 CODEC(ZSTD(1)),
    status      LowCardinality(String) CODEC(ZSTD(1)),          -- as in `spans`
    request_labels LowCardinality(String) CODEC(ZSTD(1)),
    host_id     LowCardinality(String) CODEC(ZSTD(1)),
    INDEX traces trace_id TYPE minmax GRANULARITY 1             -- as of span_operations
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(start_time)
PRIMARY KEY (service, toStartOfHour(start_time))
ORDER BY (service, toStartOfHour(start_time), trace_id, span_id);

CREATE MATERIALIZED VIEW IF NOT EXISTS entry_spans_view TO entry_spans AS
SELECT service, start_time, trace_id, span_id, operation,
    toUInt64(greatest(toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time), 0)) AS duration_ns, status,
    request_labels, host_id
FROM spans
WHERE operation != '';
