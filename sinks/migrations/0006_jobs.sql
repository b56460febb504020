-- What backfills have done, so that one that was killed goes on where it was.
CREATE TABLE IF NOT EXISTS jobs
(
    job   String,               -- its time range, and what it recomputes with
    step  String,               -- what of it is done
    done_time  DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY (job, step);
