"""Metrics of the stream processors."""

from prometheus_client import Counter, Gauge, Histogram

MESSAGES = Counter("icestream_streams_messages", "messages processed", ["topic"])
SAMPLES = Counter("icestream_streams_samples", "samples processed, by where their context came from", ["context"])
STACKS = Counter("icestream_streams_stacks", "stacks of batches: all announced today, or not", ["known"])
NODES = Counter("icestream_streams_nodes_announced", "nodes of the call tree announced")
LOCATIONS = Counter("icestream_streams_locations_named", "locations named, by way", ["way"])
SYMBOLS_MISSING = Counter("icestream_streams_symbols_missing", "locations announced without a name for want of symbols")
SYMBOL_REQUESTS = Counter("icestream_streams_symbol_requests", "symbol requests sent")
SYMBOL_FILES = Counter("icestream_streams_symbol_files", "symbol files that came", ["outcome"])
DEAD_LETTERS = Counter("icestream_streams_dead_letters", "messages that could not be processed", ["topic"])
GAPS = Counter("icestream_streams_gaps", "batches that never came: holes in collectors' sequences", ["topic"])
REPEATED = Counter("icestream_streams_repeated", "batches dropped because they were seen before", ["topic"])
CORRECTIONS = Counter("icestream_streams_corrections", "samples that got their context after they were published")
LOST_SAMPLES = Counter("icestream_streams_lost_samples", "samples that collectors say the kernel could not keep")
WAITED = Counter("icestream_streams_waits", "raw batches that waited for their activity", ["outcome"])
LAG = Gauge("icestream_streams_lag_messages", "messages not read yet", ["topic", "partition"])
ASSIGNED = Gauge("icestream_streams_partitions", "partitions assigned to this worker")
SECONDS = Histogram(
    "icestream_streams_processing_seconds", "time to process a message", ["topic"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip
