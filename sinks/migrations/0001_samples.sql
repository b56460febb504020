-- One row a sample. Stacks lie together within an hour of a service, so that their IDs compress and a merge reads runs.
CREATE TABLE samples
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
ORDER BY (profile_type, service, toStartOfHour(ts), stack_id, ts);
