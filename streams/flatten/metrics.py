"""Metrics of `icestream flatten`."""

from prometheus_client import Counter, Gauge

MESSAGES = Counter("icestream_flatten_messages", "messages of icestream.samples that are published as records")
RECORDS = Counter("icestream_flatten_records", "records published")
UNRESOLVED = Counter("icestream_flatten_unresolved_records", "records of stacks that are not known as a whole")
ANSWERED = Counter(
    "icestream_flatten_nodes_from_api", "nodes of stacks that the API named, as Kafka no longer had them"
)
CORRECTED = Counter("icestream_flatten_corrected_contexts", "trace contexts whose operation came after their records")
UNKNOWN = Counter("icestream_flatten_unknown_contexts", "trace contexts published while their operation was not known")
REPEATED = Counter("icestream_flatten_repeated", "messages skipped because they were published before")
REFUSED = Counter("icestream_flatten_refused", "messages skipped because they cannot be decoded")
ABORTED = Counter("icestream_flatten_aborted", "transactions that Kafka did not take, whose messages were read again")
LAG = Gauge("icestream_flatten_lag_messages", "messages that are not published yet", ["topic", "partition"])
