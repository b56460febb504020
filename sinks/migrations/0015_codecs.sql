-- Codecs that fit the columns: new parts and merges have them; a part that exists stays as it is until it is merged.
-- Neighbours in the order of `samples` are of one stack, not of one moment, and of different hosts. Differences between
-- them (Delta) take as much as times and numbers of batches themselves, of which T64 stores the bits that vary. Sums in
-- rollups are multiples of few numbers. Measured (docs/storage.md): samples take 1.6 bytes less, rollups 0.9.
ALTER TABLE samples
    MODIFY COLUMN time CODEC(T64('bit'), ZSTD(1)),
    MODIFY COLUMN stack_id CODEC(ZSTD(3)),
    MODIFY COLUMN batch_sequence CODEC(T64('bit'), ZSTD(1));

ALTER TABLE service_stack_hours
    MODIFY COLUMN start_time CODEC(GCD, T64('bit'), ZSTD(1)),
    MODIFY COLUMN count CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3)),
    MODIFY COLUMN build CODEC(ZSTD(1));

ALTER TABLE service_stack_days
    MODIFY COLUMN stack_id CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3));

ALTER TABLE series_stack_days
    MODIFY COLUMN count CODEC(ZSTD(3)),
    MODIFY COLUMN value CODEC(GCD, ZSTD(3));
