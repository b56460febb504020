CREATE TABLE IF NOT EXISTS activity
(
    trace_id FixedString(16) CODEC(ZSTD(1)),
    span_id  FixedString(8) CODEC(ZSTD(1)),        -- zeros: a trace without a span
    host_id  LowCardinality(String) CODEC(ZSTD(1)),
    service  LowCardinality(String) CODEC(ZSTD(1)),
    pid      UInt32 CODEC(ZSTD(1)),
    tid      UInt32 CODEC(ZSTD(1)),
    start_time    DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    duration_ns   UInt64 CODEC(ZSTD(1)),
    thread_cpu_ns UInt64 CODEC(ZSTD(1)),
    batch_run      LowCardinality(String) CODEC(ZSTD(1)),         -- as in `samples`
    batch_sequence UInt64 CODEC(Delta, ZSTD(1)),
    operation      LowCardinality(String) CODEC(ZSTD(1)),         -- the name of the entry span of its request in its
    entry_span_id  FixedString(8) CODEC(ZSTD(1)),                 -- service; '' and zeros: not known
    request_labels LowCardinality(String) CODEC(ZSTD(1))          -- of its process (docs/labels.md), as a JSON object
)
ENGINE = MergeTree
PARTITION BY toDate(start_time)
ORDER BY (trace_id, start_time)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS spans
(
    trace_id  FixedString(16) CODEC(ZSTD(1)),
    span_id   FixedString(8) CODEC(ZSTD(1)),
    parent_span_id FixedString(8) CODEC(ZSTD(1)),  -- zeros: a root
    name      String CODEC(ZSTD(1)),
    service   LowCardinality(String) CODEC(ZSTD(1)),
    host_id   LowCardinality(String) CODEC(ZSTD(1)),
    start_time     DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    end_time       DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    operation LowCardinality(String) CODEC(ZSTD(1)),  -- of entry spans only
    status    LowCardinality(String) CODEC(ZSTD(1)),  -- how it ended: error, ok, or '': its application did not say so
    request_labels LowCardinality(String) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(start_time)
ORDER BY (trace_id, span_id);
