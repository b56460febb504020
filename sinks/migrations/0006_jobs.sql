-- The steps that backfills have completed, so that a backfill that was killed continues where it stopped.
CREATE TABLE IF NOT EXISTS jobs
(
    job   String,               -- its time range and its operators
    step  String,               -- the completed step
    done_time  DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (job, step);
