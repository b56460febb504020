"""Metrics of the sinks."""

from prometheus_client import Counter, Gauge, Histogram

from icestream.http.metrics import CountedElsewhere

SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300)
"""Bounds of the buckets of all histograms here."""

MESSAGES = Counter("icestream_sinks_messages_total", "messages read", ["sink", "topic"])
BYTES = Counter("icestream_sinks_message_bytes_total", "bytes of messages read", ["sink", "topic"])
ROWS = Counter("icestream_sinks_rows_total", "rows written", ["sink", "table"])
DUPLICATES = Counter(
    "icestream_sinks_duplicates_total", "batches skipped because they were stored before", ["sink", "topic"]
)
DEAD_LETTERS = Counter(
    "icestream_sinks_dead_letters_total",
    "messages that could not be stored, by the field that is wrong",
    ["sink", "topic", "reason"],
)
MANY_LABEL_SETS = CountedElsewhere(
    "icestream_sinks_many_label_sets_total",
    "series of messages whose samples have no labels of requests: their service had too many sets of these",
    "sink",
)
FAILURES = Counter(
    "icestream_sinks_write_failures_total", "failed attempts to write, each of which is tried again", ["sink"]
)
WAITING = Gauge("icestream_sinks_store_unavailable", "1 while the store does not take data", ["sink"])
FREE = Gauge("icestream_sinks_disk_free_bytes", "free space of the disk that a sink writes to", ["sink"])
KEPT_FREE = Gauge(
    "icestream_sinks_disk_kept_free_bytes", "free space below which a sink writes nothing to its disk", ["sink"]
)
STACKS_NAMED = Counter(
    "icestream_sinks_lake_named_stacks_total", "stacks whose names Kafka had deleted, filled in with the API's"
)
STACKS_UNNAMED = Gauge(
    "icestream_sinks_lake_unnamed_stacks", "stacks of samples written lately whose names neither Kafka nor the API has"
)
GAPS = Counter("icestream_sinks_gaps_total", "messages that Kafka deleted before they were read", ["sink", "topic"])
LOGS_CHANGED = Counter(
    "icestream_sinks_logs_changed_total",
    "partitions that are read again, because their topic was made anew or Kafka has lost messages that were read",
    ["sink", "topic"],
)
LAG = Gauge("icestream_sinks_lag_messages", "messages that are not read yet", ["sink", "topic", "partition"])
WRITE_SECONDS = Histogram(
    "icestream_sinks_write_seconds", "time to write what is written at once", ["sink"], buckets=SECONDS
)
FRESHNESS = Histogram(
    "icestream_sinks_freshness_seconds",
    "time from when a collector published a batch to when queries find its rows",
    ["sink", "topic"],
    buckets=SECONDS,
)
INSERT_TOKENS = Gauge("icestream_sinks_insert_tokens", "inserts that tables of ClickHouse recognise if they come again")
INSERT_TOKENS_NEEDED = Gauge(
    "icestream_sinks_insert_tokens_needed", "inserts of all processes in ten minutes, which tables should recognise"
)
RESOLVED = Counter("icestream_sinks_resolved_locations_total", "stored locations that were named late")
