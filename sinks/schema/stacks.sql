CREATE TABLE IF NOT EXISTS series
(
    series_id UInt64 CODEC(ZSTD(1)),
    labels    Map(LowCardinality(String), LowCardinality(String)),
    last_seen DateTime('UTC') CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(last_seen)
ORDER BY series_id;

CREATE TABLE IF NOT EXISTS nodes
(
    node_id     UInt64 CODEC(Delta, ZSTD(1)),
    parent_id   UInt64 CODEC(ZSTD(1)),             -- 0: a root
    location_id UInt64 CODEC(ZSTD(1)),
    last_seen   DateTime('UTC') CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(last_seen)
ORDER BY node_id;

CREATE TABLE IF NOT EXISTS locations
(
    location_id UInt64 CODEC(ZSTD(1)),
    kind        UInt8 CODEC(ZSTD(1)),              -- icestream.v1.Mapping.Kind
    build_id    LowCardinality(String) CODEC(ZSTD(1)),
    file        LowCardinality(String) CODEC(ZSTD(1)),
    address     UInt64 CODEC(ZSTD(1)),
    version     UInt64 CODEC(ZSTD(1)),             -- of the lines; the highest wins; 0: not named
    lines       Array(Tuple(function String, file String, line UInt32, start_line UInt32)),  -- innermost (inlined) first
    last_seen   DateTime('UTC') CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY location_id;
