-- Rollups: sums of samples over hours and days, see docs/storage.md. Rows belong to a build: one computation of one
-- bucket of one level. A build counts if `rollup_builds` says so, so rows of one that did not complete do not matter.
CREATE TABLE IF NOT EXISTS rollup_builds
(
    level      LowCardinality(String),           -- minute, hour, day (icestream/clickhouse/rollups.py)
    start_time DateTime('UTC'),                  -- of the bucket
    end_time   DateTime('UTC'),
    build      UInt64,                           -- when it began, in nanoseconds: later ones are larger
    state      LowCardinality(String),           -- begun; built; final: later changes of samples do not count
    changes    UInt64,                           -- rows of `sample_changes` for the bucket, when the build began
    noted_time DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (level, start_time, build);

-- Changes of samples in hours whose rollups may have begun. A build is valid while its bucket has as many rows here
-- as when it began. Rows are never merged.
CREATE TABLE IF NOT EXISTS sample_changes
(
    start_time DateTime('UTC'),                  -- of the hour
    state      LowCardinality(String),           -- added: samples were; begun, ended: a job replaces some
    work       String,                           -- what the job replaces; '' for added
    noted_time DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = MergeTree
ORDER BY (start_time, work, noted_time);

-- Graphs by any label, over days.
CREATE TABLE IF NOT EXISTS series_stack_days
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(1)),
    series_id    LowCardinality(UInt64) CODEC(ZSTD(1)), -- a service has few series: a third less for a row
    count        Int64 CODEC(ZSTD(3)),
    value        Int64 CODEC(GCD, ZSTD(3)),
    build        LowCardinality(UInt64) CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(start_time)
ORDER BY (profile_type, service, start_time, stack_id, series_id);

-- Graphs of services and of everything, over days: a twentieth of the rows. A stack of a week has adjacent rows.
CREATE TABLE IF NOT EXISTS service_stack_days
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(3)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(GCD, ZSTD(3)),
    build        LowCardinality(UInt64) CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(start_time)
ORDER BY (profile_type, service, toMonday(start_time), stack_id, start_time);

-- Graphs of services and of everything, over hours. A stack of a day has adjacent rows, so its ID takes no space.
CREATE TABLE IF NOT EXISTS service_stack_hours
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   LowCardinality(DateTime('UTC')) CODEC(ZSTD(1)),
    stack_id     UInt64 CODEC(ZSTD(1)),
    count        Int64 CODEC(ZSTD(3)),
    value        Int64 CODEC(GCD, ZSTD(3)),
    build        LowCardinality(UInt64) CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
PRIMARY KEY (profile_type, service, toDate(start_time), stack_id)
ORDER BY (profile_type, service, toDate(start_time), stack_id, start_time);

-- Timelines by any label, in steps of whole hours.
CREATE TABLE IF NOT EXISTS series_hours
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    series_id    UInt64 CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(GCD, ZSTD(1)),
    build        UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, service, start_time, series_id);

-- Timelines of services, in steps of whole minutes.
CREATE TABLE IF NOT EXISTS service_minutes
(
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    service      LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(Delta, ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(GCD, ZSTD(1)),
    build        UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, service, start_time);

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

CREATE TABLE IF NOT EXISTS gauge_days AS gauge_hours
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
