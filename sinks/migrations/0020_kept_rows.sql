-- What the deletion of a day's light requests leaves alone (sinks/delete_requests.py). On a cluster every host has all
-- of this table: each replica deletes for itself, whichever shard it is of. Rows are needed until it has done so.
CREATE TABLE IF NOT EXISTS kept_rows
(
    day         Date,
    thinning    UInt64 CODEC(ZSTD(1)),  -- each time that a day is thinned has a number of its own
    of_span     UInt8 CODEC(ZSTD(1)),   -- 0: a trace that is kept whole; 1: a span that has samples
    hash        UInt64 CODEC(ZSTD(1)),  -- cityHash64 of the trace ID, or of trace ID and span ID
    stored_time DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY day
ORDER BY (thinning, of_span, hash)
TTL stored_time + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1;
