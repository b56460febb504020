-- The steps that jobs have completed, so that a job that was killed continues where it stopped.
CREATE TABLE IF NOT EXISTS jobs
(
    job   String,               -- its name
    step  String,               -- the completed step
    done_time  DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (job, step);
