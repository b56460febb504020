-- Days whose light requests are no longer kept in activity, spans, entry_spans and span_operations
-- (sinks/requests/thin_requests.py). The last state of a day counts.
CREATE TABLE IF NOT EXISTS thinned_days
(
    day        Date,
    -- whole: there is nothing to thin; choosing: what to keep; thinning: rows may go from now on; thinned: they will go
    state      LowCardinality(String),
    noted_time DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = MergeTree
ORDER BY (day, noted_time);

-- The operations of a day that are thinned: those that had many requests.
CREATE TABLE IF NOT EXISTS thinned_operations
(
    day               Date,
    service           LowCardinality(String) CODEC(ZSTD(1)),
    operation         LowCardinality(String) CODEC(ZSTD(1)),
    requests          UInt64 CODEC(ZSTD(1)),
    above_cpu_ns      UInt64 CODEC(ZSTD(1)),    -- a request that used more is kept
    above_duration_ns UInt64 CODEC(ZSTD(1))     -- a request that took longer is kept
)
ENGINE = ReplacingMergeTree
ORDER BY (day, service, operation);

-- The traces of a day that are kept whole for one of their requests. Besides them, one in a hundred is kept by its ID.
CREATE TABLE IF NOT EXISTS kept_traces
(
    day      Date,
    trace_id FixedString(16) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY day
ORDER BY trace_id;
