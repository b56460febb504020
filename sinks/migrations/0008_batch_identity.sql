-- The batch that a row comes from. With it, a job replaces the rows of the batches that it recomputed, and no others: not
-- those that arrived while it ran. `batch_run` is KIND/COLLECTOR/START OF THE COLLECTOR/PART, of the row of `batches`. It is
-- empty in rows that were stored before these columns existed. The two columns take 0.6 bytes a sample.
ALTER TABLE samples
    ADD COLUMN IF NOT EXISTS batch_run LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS batch_sequence UInt64 CODEC(Delta, ZSTD(1));

ALTER TABLE trace_samples
    ADD COLUMN IF NOT EXISTS batch_run LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS batch_sequence UInt64 CODEC(Delta, ZSTD(1));

ALTER TABLE activity
    ADD COLUMN IF NOT EXISTS batch_run LowCardinality(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS batch_sequence UInt64 CODEC(Delta, ZSTD(1));

ALTER TABLE trace_samples_view MODIFY QUERY
SELECT trace_id, span_id, profile_type, service, series_id, host_id, time, pid, tid, stack_id, count, value,
       batch_run, batch_sequence
FROM samples
WHERE trace_id != toFixedString('', 16);

-- Which jobs work on which time range now. A job inserts a row every few seconds, and its last one when it ends.
CREATE TABLE IF NOT EXISTS job_locks
(
    owner        String,                  -- one run of a job
    job          String,                  -- the name of the job
    process      String,                  -- host name, PID namespace and process ID of the owner
    start_time   DateTime64(3, 'UTC'),    -- the time range of the job
    end_time     DateTime64(3, 'UTC'),
    renewed_time DateTime64(3, 'UTC') DEFAULT now64(3),
    expires_time DateTime64(3, 'UTC')     -- without a later row, the owner is dead from then on
)
ENGINE = MergeTree
ORDER BY owner
TTL toDateTime(renewed_time) + INTERVAL 7 DAY;
