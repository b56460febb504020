-- Views for people who write SQL, so that no query needs to walk up the call tree. They take a time range:
-- SELECT * FROM function_cpu(start = '2026-01-31 12:00:00', end = '2026-01-31 13:00:00')

-- The stacks of the samples in the range, with the newest names of their functions, root first. Inlined functions come
-- after the function that they are in; a location without symbols is module+0xaddress. IDs are plain numbers:
-- anybody can make a table of them.
CREATE VIEW IF NOT EXISTS stacks AS
WITH RECURSIVE walk AS
(
    SELECT DISTINCT CAST(samples.stack_id AS UInt64) AS stack_id, stack_id AS node_id, 0 AS height FROM samples
    WHERE time >= {start:DateTime64(3, 'UTC')} AND time < {end:DateTime64(3, 'UTC')} AND stack_id != 0
    UNION ALL
    SELECT walk.stack_id AS stack_id, nodes.parent_id AS node_id, walk.height + 1 AS height
    FROM (SELECT DISTINCT node_id, parent_id FROM nodes WHERE parent_id != 0) AS nodes
    INNER JOIN walk ON nodes.node_id = walk.node_id
)
SELECT walk.stack_id AS stack_id,
    arrayFlatten(arrayMap(frames -> frames.2, arrayReverseSort(frames -> frames.1,
        groupArray((walk.height, named.functions))))) AS functions
FROM walk
INNER JOIN (SELECT node_id, any(location_id) AS location_id FROM nodes GROUP BY node_id) AS placed
    ON placed.node_id = walk.node_id
INNER JOIN
(
    SELECT location_id, argMax(lines, version) AS newest, any(toString(file)) AS mapped, any(address) AS at,
        if(notEmpty(newest), arrayReverse(newest.function), [if(mapped = '' AND at = 0, '[unknown]', concat(
            if(mapped = '', 'unknown', splitByChar('/', mapped)[-1]), '+0x',
            if(at = 0, '0', trim(LEADING '0' FROM lower(hex(at))))))]) AS functions
    FROM locations GROUP BY location_id
) AS named ON named.location_id = placed.location_id
GROUP BY stack_id
SETTINGS max_recursive_cte_evaluation_depth = 5000;

-- Samples with what they refer to.
CREATE VIEW IF NOT EXISTS profile_samples AS
SELECT samples.time AS time, toString(samples.profile_type) AS profile_type, toString(samples.service) AS service,
    toString(samples.host_id) AS host_id, labelled.labels AS labels, samples.pid AS pid,
    CAST(samples.tid AS UInt32) AS tid,
    if(samples.trace_id = toFixedString('', 16), '', lower(hex(samples.trace_id))) AS trace_id,
    if(samples.span_id = toFixedString('', 8), '', lower(hex(samples.span_id))) AS span_id,
    CAST(samples.stack_id AS UInt64) AS stack_id, samples.count AS count, samples.value AS value,
    multiIf(samples.stack_id = 0, ['[no stack]'], empty(named.functions), ['[unresolved stack]'], named.functions) AS functions
FROM samples
LEFT JOIN (SELECT series_id, any(labels) AS labels FROM series GROUP BY series_id) AS labelled
    ON labelled.series_id = samples.series_id
LEFT JOIN
    (
        SELECT stack_id, functions
        FROM stacks(start = {start:DateTime64(3, 'UTC')}, end = {end:DateTime64(3, 'UTC')})
    ) AS named ON named.stack_id = samples.stack_id
WHERE samples.time >= {start:DateTime64(3, 'UTC')} AND samples.time < {end:DateTime64(3, 'UTC')};

-- Sampled CPU of each function of each service. Cumulative sums count recursion once.
CREATE VIEW IF NOT EXISTS function_cpu AS
SELECT service, function,
    sumIf(value, is_leaf) AS flat_ns, sum(value) AS cumulative_ns, sum(count) AS samples
FROM
(
    SELECT sums.service AS service, sums.value AS value, sums.count AS count,
        multiIf(sums.stack_id = 0, ['[no stack]'], empty(named.functions), ['[unresolved stack]'], named.functions) AS frames,
        arrayJoin(arrayDistinct(frames)) AS function,
        function = frames[-1] AS is_leaf
    FROM
    (
        SELECT toString(service) AS service, stack_id, sum(value) AS value, toInt64(sum(count)) AS count FROM samples
        WHERE profile_type = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds'
            AND time >= {start:DateTime64(3, 'UTC')} AND time < {end:DateTime64(3, 'UTC')}
        GROUP BY service, stack_id
    ) AS sums
    LEFT JOIN
    (
        SELECT stack_id, functions
        FROM stacks(start = {start:DateTime64(3, 'UTC')}, end = {end:DateTime64(3, 'UTC')})
    ) AS named ON named.stack_id = sums.stack_id
)
GROUP BY service, function;

-- CPU of each operation of each service, as /api/v1/operations says it: what belongs to no known operation has ''. Sampled
-- CPU is of samples in the range, thread CPU of intervals that began in it. Without another operation, that of a sample is
-- the label `span_name` of its series. An operation that only spans tell, without activity, is not known here.
-- SELECT * FROM operation_cpu(start = '2026-01-31 12:00:00', end = '2026-01-31 13:00:00') WHERE service = 'checkout'
CREATE VIEW IF NOT EXISTS operation_cpu AS
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
