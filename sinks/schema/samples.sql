-- One row for each sample. Within an hour of a service, rows of a series are adjacent, in the order of time: host and run
-- of the collector compress to nothing, times and numbers of batches to small differences. A service has few series,
-- stacks and threads, so dictionaries make their IDs short. Measured (benchmarks/storage): 5.5 bytes a
-- sample: time takes 2.3, the stack 1.9, the batch 0.7, the thread 0.4.
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
    value        Int64 CODEC(ZSTD(1)),
    -- The batch that a row comes from: KIND/COLLECTOR/START OF THE COLLECTOR/PART of its row in `batches`. By it, a job
    -- replaces the rows of the batches that it recomputed, and no others: not those that arrived while it ran.
    batch_run      LowCardinality(String) CODEC(ZSTD(1)),
    batch_sequence UInt64 CODEC(Delta, T64, ZSTD(1)),
    -- The operation as far as it was known when the sample was stored: by activity that streams had read, or by the label
    -- of its series. It is '' in rows of jobs. Queries of rows look into `span_operations` instead.
    known_operation LowCardinality(String) CODEC(ZSTD(1)),
    request_labels LowCardinality(String) CODEC(ZSTD(1))   -- as in `activity`, of its series
)
ENGINE = MergeTree
PARTITION BY toDate(time)
PRIMARY KEY (profile_type, service, toStartOfHour(time), series_id)
ORDER BY (profile_type, service, toStartOfHour(time), series_id, time)
-- ClickHouse remembers the tokens of the latest blocks, and drops a block that comes again (sinks/clickhouse/sink.py).
SETTINGS non_replicated_deduplication_window = 10000;

-- The samples that have a trace, ordered by trace ID: reads one trace of a hundred million samples in milliseconds.
CREATE TABLE IF NOT EXISTS trace_samples
(
    trace_id     FixedString(16) CODEC(ZSTD(1)),
    span_id      FixedString(8) CODEC(ZSTD(1)),
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    series_id    LowCardinality(UInt64) CODEC(ZSTD(1)),
    host_id      LowCardinality(String) CODEC(ZSTD(1)),
    time         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    pid          UInt32 CODEC(ZSTD(1)),
    tid          LowCardinality(UInt32) CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(3)),
    count        Int32 CODEC(ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    batch_run      LowCardinality(String) CODEC(ZSTD(1)),
    batch_sequence UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (trace_id, time)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_samples_view TO trace_samples AS
SELECT trace_id, span_id, profile_type, service, series_id, host_id, time, pid, tid, stack_id, count, value,
       batch_run, batch_sequence
FROM samples
WHERE trace_id != toFixedString('', 16);

-- Which series had samples in which hour, for labels and their values. It is a set: what comes twice changes nothing.
CREATE TABLE IF NOT EXISTS series_seen
(
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toMonday(start_time)
ORDER BY (start_time, profile_type, series_id)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS series_seen_view TO series_seen AS
SELECT DISTINCT toStartOfHour(time) AS start_time, profile_type, series_id
FROM samples;
