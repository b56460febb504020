-- One row for each sample. Within an hour of a service, rows of a stack are adjacent: their IDs compress, and a merge
-- reads runs. Within a stack, rows of a series and a thread are adjacent, so these columns compress to almost nothing.
-- Measured (benchmarks/clickhouse.py: 20 hosts, 40 services, 400 threads each, a tenth of the samples in a trace): 4.9
-- bytes for a row, of which trace and span IDs take 2.8, time 1.7, tid 0.2, all else 0.2; and 1.2 in `trace_samples`.
CREATE TABLE IF NOT EXISTS samples
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1)),
    host_id      LowCardinality(String) CODEC(ZSTD(1)),
    time         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    pid          UInt32 CODEC(ZSTD(1)),
    tid          UInt32 CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(1)),
    trace_id     FixedString(16) CODEC(ZSTD(1)),   -- zeros: no trace
    span_id      FixedString(8) CODEC(ZSTD(1)),
    count        Int32 CODEC(ZSTD(1)),             -- negative where a correction takes a value back
    value        Int64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
PRIMARY KEY (profile_type, service, toStartOfHour(time), stack_id)
ORDER BY (profile_type, service, toStartOfHour(time), stack_id, series_id, tid, time)
-- ClickHouse remembers the tokens of the latest blocks, and drops a block that comes again (sinks/clickhouse.py).
SETTINGS non_replicated_deduplication_window = 10000;
