-- The steps that jobs have completed, so that a job that was killed continues where it stopped.
CREATE TABLE IF NOT EXISTS jobs
(
    job   String,               -- its name
    step  String,               -- the completed step
    done_time  DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (job, step);

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
