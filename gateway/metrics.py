"""Metrics of the gateway."""

from prometheus_client import Counter, Gauge, Histogram

from icestream.metrics import CountedElsewhere

REQUESTS = Counter("icestream_gateway_requests_total", "Requests, by route and status", ["route", "status"])
SECONDS = Histogram(
    "icestream_gateway_request_seconds",
    "Seconds from a request to its answer, in which Kafka acknowledged",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
RUNNING = Gauge("icestream_gateway_requests_running", "Requests that are worked on")
BODY_BYTES = Counter("icestream_gateway_body_bytes_total", "Bytes of bodies, as they were sent", ["route"])
PROFILES = Counter("icestream_gateway_profiles_total", "Profiles that Kafka acknowledged", ["format"])
SAMPLES = Counter(
    "icestream_gateway_samples_total", "Samples that Kafka acknowledged, of all profile types", ["format"]
)
SPANS = Counter("icestream_gateway_spans_total", "Spans that Kafka acknowledged", ["format"])
MANY_OPERATIONS = CountedElsewhere(
    "icestream_gateway_many_operations_total", "Entry spans whose service had too many operations"
)
SENT_BYTES = Counter("icestream_gateway_sent_bytes_total", "Bytes that Kafka acknowledged, before compression")
REFUSED = Counter("icestream_gateway_refused_total", "Requests that were refused, by the code in the answer", ["code"])
DROPPED = Counter(
    "icestream_gateway_dropped_total", "What profiles had and was not taken, as the answers say it", ["what"]
)
