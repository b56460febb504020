-- The batches that are stored. A batch is inserted after its rows, so a batch in this table is complete. By this table,
-- the sinks skip batches that come again, and replay finds missing ones. A gap in a collector's sequence is a lost window.
CREATE TABLE IF NOT EXISTS batches
(
    kind         LowCardinality(String),   -- samples; corrections: late attributions, by activity batch; activity
    collector    LowCardinality(String),
    started_unix_nano UInt64 CODEC(ZSTD(1)),
    sequence     UInt64 CODEC(Delta, ZSTD(1)),
    part         UInt32,                   -- of `parts` messages that the window was split into
    parts        UInt32,
    output       UInt32,                   -- of `outputs` messages that were made of this message
    outputs      UInt32,
    host_id      LowCardinality(String),
    profile_type LowCardinality(String),   -- '' for activity
    cluster      LowCardinality(String),   -- where the batch itself (raw, activity) lies in Kafka
    topic        LowCardinality(String),
    partition    Int32,
    offset       Int64 CODEC(Delta, ZSTD(1)),
    first_time        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),   -- time of its first and last row
    last_time         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    rows         UInt64,
    count        Int64,                    -- sum of count
    value        Int64,                    -- sum of value; of activity: of thread_cpu_ns
    published_time    DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    block        String CODEC(ZSTD(1)),    -- the insert that it was part of
    -- What a batch says of its window, to tell what is missing. 0 in activity and in corrections. `period` is above
    -- `configured_period` where the CPU budget of a collector lowered its frequency.
    period            UInt64 CODEC(ZSTD(1)),
    configured_period UInt64 CODEC(ZSTD(1)),
    lost_samples      UInt64 CODEC(ZSTD(1)),   -- buffers of the kernel were full
    dropped_samples   UInt64 CODEC(ZSTD(1)),   -- in batches that the collector gave up
    -- Its row is kept for some days from then on: a batch of old data may come again as soon as any other.
    stored_time  DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(last_time)
ORDER BY (kind, collector, started_unix_nano, sequence, part, output)
SETTINGS non_replicated_deduplication_window = 10000;

-- Messages on icestream.dead-letters, without their bytes. One that was sent twice is here twice.
CREATE TABLE IF NOT EXISTS dead_letters
(
    time      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),   -- when it became a dead letter
    host_id   String CODEC(ZSTD(1)),                        -- the message's key
    topic     LowCardinality(String),                       -- where the message came from, with partition and offset
    partition Int32,
    offset    Int64 CODEC(ZSTD(1)),
    stage     LowCardinality(String),                       -- what failed
    error     String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY time
SETTINGS non_replicated_deduplication_window = 10000;
