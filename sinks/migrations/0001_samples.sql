-- One row a sample. Stacks lie together within an hour of a service, so that their IDs compress and a merge reads runs.
CREATE TABLE IF NOT EXISTS samples
(
    profile_type LowCardinality(String),
    service      LowCardinality(String),
    series_id    UInt64,
    host_id      LowCardinality(String),
    ts           DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    pid          UInt32,
    tid          UInt32,
    stack_id     UInt64 CODEC(ZSTD(1)),
    trace_id     FixedString(16),   -- zeros: no trace
    span_id      FixedString(8),
    count        Int32,             -- negative where a correction takes a value back
    value        Int64
)
ENGINE = MergeTree
PARTITION BY toDate(ts)
ORDER BY (profile_type, service, toStartOfHour(ts), stack_id, ts)
-- Tokens of the latest blocks: a block inserted again is recognised and dropped (sinks/clickhouse.py).
SETTINGS non_replicated_deduplication_window = 10000;
