-- What people and deployments say of a moment, for timelines: POST /api/v1/annotations inserts a row.
CREATE TABLE IF NOT EXISTS annotations
(
    time   DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    text   String CODEC(ZSTD(1)),
    labels Map(LowCardinality(String), String) CODEC(ZSTD(1))   -- of what it is about; empty: of everything
)
ENGINE = MergeTree
ORDER BY time
SETTINGS non_replicated_deduplication_window = 100;
