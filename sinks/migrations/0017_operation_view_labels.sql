-- The view of migration 13, with the labels `span_name` of series as operations of samples without another one.
-- CPU of each operation of each service, as /api/v1/operations says it: what belongs to no known operation has ''. Sampled
-- CPU is of samples in the range, thread CPU of intervals that began in it. An operation that only spans tell, without
-- activity, is not known here.
-- SELECT * FROM operation_cpu(start = '2026-01-31 12:00:00', end = '2026-01-31 13:00:00') WHERE service = 'checkout'
CREATE OR REPLACE VIEW operation_cpu AS
SELECT service, operation, toInt64(sum(sampled)) AS sampled_cpu_ns, toInt64(sum(n)) AS samples,
    toInt64(sum(measured)) AS thread_cpu_ns
FROM
(
    SELECT toString(samples.service) AS service, if(spans_of.operation != '', spans_of.operation, series_of.label) AS operation,
        toInt64(sum(value)) AS sampled, toInt64(sum(count)) AS n, toInt64(0) AS measured
    FROM samples
    LEFT ANY JOIN
    (
        -- An interval lasts an hour at most, and a row says when the last one of its hour began.
        SELECT trace_id, span_id, argMax(toString(operation), (start_time, toString(operation))) AS operation
        FROM span_operations
        WHERE start_time >= toStartOfHour({start:DateTime64(3, 'UTC')}) - INTERVAL 1 HOUR
            AND start_time < toStartOfHour({end:DateTime64(3, 'UTC')}) + INTERVAL 1 HOUR
        GROUP BY trace_id, span_id
    ) AS spans_of USING (trace_id, span_id)
    LEFT ANY JOIN
    (
        SELECT series_id, any(toString(labels['span_name'])) AS label FROM series
        WHERE labels['span_name'] != ''
        GROUP BY series_id
    ) AS series_of USING (series_id)
    WHERE profile_type = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds'
        AND time >= {start:DateTime64(3, 'UTC')} AND time < {end:DateTime64(3, 'UTC')}
    GROUP BY service, operation
    UNION ALL
    SELECT toString(service) AS service, toString(operation) AS operation, toInt64(0), toInt64(0),
        toInt64(sum(thread_cpu_ns))
    FROM activity
    WHERE start_time >= {start:DateTime64(3, 'UTC')} AND start_time < {end:DateTime64(3, 'UTC')}
    GROUP BY service, operation
)
GROUP BY service, operation;
