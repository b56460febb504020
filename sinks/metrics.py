"""Metrics of the sinks."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300)

MESSAGES = Counter("icestream_sinks_messages_total", "Messages read", ["sink", "topic"])
BYTES = Counter("icestream_sinks_message_bytes_total", "Bytes of messages read", ["sink", "topic"])
ROWS = Counter("icestream_sinks_rows_total", "Rows written", ["sink", "table"])
DUPLICATES = Counter("icestream_sinks_duplicates_total", "Batches that came again and were skipped", ["sink", "topic"])
DEAD_LETTERS = Counter("icestream_sinks_dead_letters_total", "Messages that could not be stored", ["sink", "topic"])
FAILURES = Counter("icestream_sinks_write_failures_total", "Attempts to write that failed and are repeated", ["sink"])
WAITING = Gauge("icestream_sinks_store_unavailable", "1 while the store does not take what was read", ["sink"])
GAPS = Counter("icestream_sinks_gaps_total", "Messages that Kafka dropped before they were read", ["sink", "topic"])
LAG = Gauge("icestream_sinks_lag_messages", "Messages not yet read", ["sink", "topic", "partition"])
WRITE_SECONDS = Histogram("icestream_sinks_write_seconds", "Time to write a range", ["sink"], buckets=_SECONDS)
FRESHNESS = Histogram(
    "icestream_sinks_freshness_seconds",
    "From the collector's publishing of a batch to its rows being found by a query",
    ["sink", "topic"],
    buckets=_SECONDS,
)
RESOLVED = Counter("icestream_sinks_resolved_locations_total", "Locations that were stored unnamed and got their names")
