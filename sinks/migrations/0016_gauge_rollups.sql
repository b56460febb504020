-- Rollups of gauges, see docs/storage.md: sums of their values, and the times of their profiles. With these, averages over
-- long time ranges are those of the rows. Rows belong to builds, as those of other rollups.
CREATE TABLE IF NOT EXISTS gauge_hours
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    profiles     UInt64 CODEC(T64, ZSTD(1)),              -- different times of samples
    first_time   DateTime64(3, 'UTC') CODEC(ZSTD(1)),     -- of the first profile
    last_time    DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    build        UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, service, start_time, series_id);

CREATE TABLE IF NOT EXISTS gauge_days
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    profiles     UInt64 CODEC(T64, ZSTD(1)),
    first_time   DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    last_time    DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    build        UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(start_time)
ORDER BY (profile_type, service, start_time, series_id);

CREATE TABLE IF NOT EXISTS gauge_stack_days
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    build        UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(start_time)
ORDER BY (profile_type, service, start_time, stack_id, series_id);
