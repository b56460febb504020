-- Rollups of operations, see docs/storage.md: what /api/v1/operations answers, for any time range. Rows belong to builds,
-- as those of other rollups. What is of samples has a profile type; what is of requests and intervals has ''.
-- They are in the order of time, in small granules: to read a sketch takes long, also where it is not needed.
CREATE TABLE IF NOT EXISTS operation_hours
(
    service      LowCardinality(String) CODEC(ZSTD(1)),
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    operation    LowCardinality(String) CODEC(ZSTD(1)),   -- '': what belongs to none
    request_labels LowCardinality(String) CODEC(ZSTD(1)), -- as in `activity` and `samples`
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    squares      Float64 CODEC(ZSTD(1)),                  -- of the periods of samples, for confidence intervals
    longest_period Float64 CODEC(ZSTD(1)),
    thread_cpu_ns  UInt64 CODEC(ZSTD(1)),                 -- of intervals, where they began
    requests       UInt64 CODEC(T64, ZSTD(1)),            -- that have ended, where they began
    measured       UInt64 CODEC(T64, ZSTD(1)),            -- requests of which a clock measured CPU
    errors         UInt64 CODEC(T64, ZSTD(1)),            -- requests whose entry span ended with an error
    request_cpu_ns UInt64 CODEC(ZSTD(1)),                 -- of `measured`
    request_duration_ns UInt64 CODEC(ZSTD(1)),
    request_cpu_squares Float64 CODEC(ZSTD(1)),           -- sums of each request's nanoseconds, squared: for variances
    request_duration_squares Float64 CODEC(ZSTD(1)),
    cpu      AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),   -- of each request
    duration AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),
    build    UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, start_time, service, operation, request_labels)
SETTINGS index_granularity = 512;

CREATE TABLE IF NOT EXISTS operation_minutes AS operation_hours
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
PRIMARY KEY (profile_type, toStartOfHour(start_time), service)
ORDER BY (profile_type, toStartOfHour(start_time), service, operation, request_labels, start_time)
SETTINGS index_granularity = 512;

-- As hours, in a sixth of the rows: most of a query's time is taken by sketches.
CREATE TABLE IF NOT EXISTS operation_six_hours AS operation_hours
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, start_time, service, operation, request_labels)
SETTINGS index_granularity = 512;

CREATE TABLE IF NOT EXISTS operation_days AS operation_hours
ENGINE = MergeTree
PARTITION BY toYYYYMM(start_time)
PRIMARY KEY (profile_type, toDate(start_time), service)
ORDER BY (profile_type, toDate(start_time), service, operation, request_labels, start_time);
