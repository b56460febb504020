-- Within a service and an hour, rows are in the order of their traces, which the primary key does not know. With these
-- indexes, who reads a range of traces reads a few of its granules: builds of operations and thinning divide their work
-- by traces. Parts that exist get them when they are merged.
ALTER TABLE entry_spans
    ADD INDEX IF NOT EXISTS traces trace_id TYPE minmax GRANULARITY 1;

ALTER TABLE span_operations
    ADD INDEX IF NOT EXISTS traces trace_id TYPE minmax GRANULARITY 1;
