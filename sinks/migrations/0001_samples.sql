-- One row for each sample. Within an hour of a service, rows of a series are adjacent, in the order of time: host and run
-- of the collector compress to nothing, times and numbers of batches to small differences. A service has few series,
-- stacks and threads, so dictionaries make their IDs short. Measured (benchmarks/storage, docs/storage.md): 5.5 bytes a
-- sample, of which time takes 2.3, the stack 1.9, the batch 0.7, the thread 0.4.
-- Tables of earlier releases are ordered by stack (10 bytes a sample), and everything works with them, too.
-- formerly 4f4bf3ef0eceaa6fe1cf1b2e6a631bea5f5c0ca05bf5f3464c29822ae9b50827
CREATE TABLE IF NOT EXISTS samples
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    series_id    LowCardinality(UInt64) CODEC(ZSTD(1)),
    host_id      LowCardinality(String) CODEC(ZSTD(1)),
    time         DateTime64(3, 'UTC') CODEC(Delta, T64, ZSTD(1)),
    pid          UInt32 CODEC(ZSTD(1)),
    tid          LowCardinality(UInt32) CODEC(ZSTD(1)),
    stack_id     LowCardinality(UInt64) CODEC(ZSTD(1)),
    trace_id     FixedString(16) CODEC(ZSTD(1)),   -- zeros: no trace
    span_id      FixedString(8) CODEC(ZSTD(1)),
    count        Int32 CODEC(ZSTD(1)),             -- negative where a correction takes a value back
    value        Int64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
PRIMARY KEY (profile_type, service, toStartOfHour(time), series_id)
ORDER BY (profile_type, service, toStartOfHour(time), series_id, time)
-- ClickHouse remembers the tokens of the latest blocks, and drops a block that comes again (sinks/clickhouse.py).
SETTINGS non_replicated_deduplication_window = 10000;
