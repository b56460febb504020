-- How a span ended: error, ok, or '': its application did not say so, or the row is older than this column.
ALTER TABLE spans
    ADD COLUMN IF NOT EXISTS status LowCardinality(String) CODEC(ZSTD(1));
