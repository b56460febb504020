CREATE TABLE IF NOT EXISTS series
(
    series_id UInt64,
    labels    Map(LowCardinality(String), LowCardinality(String)),
    last_seen DateTime('UTC')
)
ENGINE = ReplacingMergeTree(last_seen)
ORDER BY series_id;

CREATE TABLE IF NOT EXISTS nodes
(
    node_id     UInt64,
    parent_id   UInt64,             -- 0: a root
    location_id UInt64,
    last_seen   DateTime('UTC')
)
ENGINE = ReplacingMergeTree(last_seen)
ORDER BY node_id;

CREATE TABLE IF NOT EXISTS locations
(
    location_id UInt64,
    kind        UInt8,              -- icestream.v1.Mapping.Kind
    build_id    LowCardinality(String),
    file        LowCardinality(String),
    address     UInt64,
    version     UInt64,             -- of the lines; the highest wins; 0: not named
    lines       Array(Tuple(function String, file String, line UInt32, start_line UInt32)),  -- innermost (inlined) first
    last_seen   DateTime('UTC')
)
ENGINE = ReplacingMergeTree(version)
ORDER BY location_id;
