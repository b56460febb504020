-- As `operation_hours`, in a sixth of the rows: most of a query's time is taken by sketches.
CREATE TABLE IF NOT EXISTS operation_six_hours
(
    service      LowCardinality(String) CODEC(ZSTD(1)),
    profile_type LowCardinality(String) CODEC(ZSTD(1)),
    operation    LowCardinality(String) CODEC(ZSTD(1)),
    start_time   DateTime('UTC') CODEC(ZSTD(1)),
    count        Int64 CODEC(T64, ZSTD(1)),
    value        Int64 CODEC(ZSTD(1)),
    squares      Float64 CODEC(ZSTD(1)),
    longest_period Float64 CODEC(ZSTD(1)),
    thread_cpu_ns  UInt64 CODEC(ZSTD(1)),
    requests       UInt64 CODEC(T64, ZSTD(1)),
    measured       UInt64 CODEC(T64, ZSTD(1)),
    request_cpu_ns UInt64 CODEC(ZSTD(1)),
    request_duration_ns UInt64 CODEC(ZSTD(1)),
    cpu      AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),
    duration AggregateFunction(quantilesDD(0.01, 0.5, 0.95, 0.99), Float64) CODEC(ZSTD(1)),
    build    UInt64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toMonday(start_time)
ORDER BY (profile_type, start_time, service, operation)
SETTINGS index_granularity = 512;
