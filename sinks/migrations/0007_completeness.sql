-- What a batch says of its window, to tell what is missing. 0 in activity, in corrections, and in rows of older sinks.
-- `period` is above `configured_period` where the CPU budget of a collector lowered its frequency.
ALTER TABLE batches
    ADD COLUMN IF NOT EXISTS period            UInt64 CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS configured_period UInt64 CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS lost_samples      UInt64 CODEC(ZSTD(1)),   -- buffers of the kernel were full
    ADD COLUMN IF NOT EXISTS dropped_samples   UInt64 CODEC(ZSTD(1));   -- in batches that the collector gave up
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
