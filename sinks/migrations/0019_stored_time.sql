-- When a batch was stored. Its row is kept for some days from then on: a batch of old data may come again as soon as any
-- other. Rows of before this column count as stored now, by and by as ClickHouse merges them.
ALTER TABLE batches
    ADD COLUMN IF NOT EXISTS stored_time DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1));
