-- The samples that have a trace, ordered by it: one trace out of a hundred million samples in milliseconds.
CREATE TABLE IF NOT EXISTS trace_samples
(
    trace_id     FixedString(16),
    span_id      FixedString(8),
    profile_type LowCardinality(String),
    service      LowCardinality(String),
    series_id    UInt64,
    host_id      LowCardinality(String),
    ts           DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    pid          UInt32,
    tid          UInt32,
    stack_id     UInt64 CODEC(ZSTD(1)),
    count        Int32,
    value        Int64
)
ENGINE = MergeTree
PARTITION BY toDate(ts)
ORDER BY (trace_id, ts)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_samples_view TO trace_samples AS
SELECT trace_id, span_id, profile_type, service, series_id, host_id, ts, pid, tid, stack_id, count, value
FROM samples
WHERE trace_id != toFixedString('', 16);
