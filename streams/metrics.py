"""Metrics of the stream processors."""

from prometheus_client import Counter, Gauge, Histogram

from icestream.topics import ACTIVITY, RAW

MESSAGES = Counter("icestream_streams_messages", "messages processed", ["topic"])
SAMPLES = Counter("icestream_streams_samples", "samples processed, by the source of their trace context", ["context"])
STACKS = Counter(
    "icestream_streams_stacks", "stacks of batches, by whether all of their nodes were announced before", ["known"]
)
WRONG_STACKS = Counter(
    "icestream_streams_wrong_stacks", "stacks not announced, as their sender gave them an ID that is not theirs"
)
NODES = Counter("icestream_streams_nodes_announced", "nodes of the call tree announced")
NODES_AGAIN = Counter(
    "icestream_streams_nodes_announced_again",
    "nodes announced again on the same day, because Kafka keeps few bytes of announcements",
)
LOCATIONS = Counter("icestream_streams_locations_named", "locations named, by way: cached or looked up", ["way"])
SYMBOLS_MISSING = Counter(
    "icestream_streams_symbols_missing", "locations announced without a name because their symbols are missing"
)
SYMBOL_REQUESTS = Counter("icestream_streams_symbol_requests", "symbol requests sent")
SYMBOL_FILES = Counter("icestream_streams_symbol_files", "symbol files received", ["outcome"])
DEAD_LETTERS = Counter(
    "icestream_streams_dead_letters",
    "messages that could not be processed, by the field that is wrong",
    ["topic", "reason"],
)
READ_AGAIN = Counter(
    "icestream_streams_read_again", "messages that Faust did not deliver, so that they were read from Kafka", ["topic"]
)
GAPS = Counter("icestream_streams_gaps", "batches missing in collectors' sequences", ["topic"])
for _topic in (RAW, ACTIVITY):  # a series that begins above 0 would not count as an increase
    READ_AGAIN.labels(_topic)
    GAPS.labels(_topic)
REPEATED = Counter("icestream_streams_repeated", "batches dropped because they were processed before", ["topic"])
CORRECTIONS = Counter("icestream_streams_corrections", "samples that were published before their trace context came")
LOST_SAMPLES = Counter("icestream_streams_lost_samples", "samples that collectors report as lost")
WAITED = Counter("icestream_streams_waits", "raw batches that waited for their activity, by outcome", ["outcome"])
FORGOTTEN = Counter(
    "icestream_streams_forgotten",
    "samples and intervals forgotten before the other side of the join came, because memory was full", ["what"],
)  # fmt: skip
for _what in ("samples", "intervals"):  # as above
    FORGOTTEN.labels(_what)
SHARED_IDS = Counter("icestream_streams_shared_ids", "raw batches of two running collectors that have the same ID")
LAG = Gauge("icestream_streams_lag_messages", "messages that are not processed yet", ["topic", "partition"])
ASSIGNED = Gauge("icestream_streams_partitions", "partitions assigned to this worker")
SECONDS = Histogram(
    "icestream_streams_processing_seconds", "time to process a message", ["topic"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip
