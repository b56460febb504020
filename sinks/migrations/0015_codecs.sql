-- Codecs that fit the columns: new parts and merges have them; a part that exists stays as it is until it is merged.
-- Sums in rollups are multiples of few numbers. Measured (docs/storage.md): rollups take 0.9 bytes a sample less.
-- formerly 8cd5c095dc1048119c86db7d6c9a1b921e7f114cb8009458b765dca7c439d897
ALTER TABLE samples
    MODIFY COLUMN batch_sequence CODEC(Delta, T64, ZSTD(1));

-- formerly bf4fc1c99ce2657952a01b9b9d19741f60077324d4bccfe59d67634e30ead83c
ALTER TABLE service_stack_hours
    MODIFY COLUMN count CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3));

ALTER TABLE service_stack_days
    MODIFY COLUMN stack_id CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3));

ALTER TABLE series_stack_days
    MODIFY COLUMN count CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3));
