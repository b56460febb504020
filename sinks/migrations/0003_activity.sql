CREATE TABLE IF NOT EXISTS activity
(
    trace_id FixedString(16),
    span_id  FixedString(8),        -- zeros: a trace without a span
    host_id  LowCardinality(String),
    service  LowCardinality(String),
    pid      UInt32,
    tid      UInt32,
    start    DateTime64(9, 'UTC'),
    duration_ns UInt64,
    cpu_ns   UInt64
)
ENGINE = MergeTree
PARTITION BY toDate(start)
ORDER BY (trace_id, start)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS spans
(
    trace_id  FixedString(16),
    span_id   FixedString(8),
    parent_span_id FixedString(8),  -- zeros: a root
    name      String,
    service   LowCardinality(String),
    host_id   LowCardinality(String),
    start     DateTime64(9, 'UTC'),
    end       DateTime64(9, 'UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(start)
ORDER BY (trace_id, span_id);
