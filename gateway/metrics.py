"""Metrics of the gateway."""

from prometheus_client import Counter, Gauge, Histogram

from icestream.http.metrics import CountedElsewhere

REQUESTS = Counter("icestream_gateway_requests_total", "Requests, by route and status", ["route", "status"])
SECONDS = Histogram(
    "icestream_gateway_request_seconds",
    "Seconds from a request to its answer, in which Kafka acknowledged",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
RUNNING = Gauge("icestream_gateway_requests_running", "Requests that are worked on")
READING_BYTES = Gauge(
    "icestream_gateway_reading_bytes", "Memory of the bodies that are read, as estimated from their bytes and elements"
)
BODY_BYTES = Counter("icestream_gateway_body_bytes_total", "Bytes of bodies, as they were sent", ["route"])
PROFILES = Counter("icestream_gateway_profiles_total", "Profiles that Kafka acknowledged", ["format"])
SAMPLES = Counter(
    "icestream_gateway_samples_total", "Samples that Kafka acknowledged, of all profile types", ["format"]
)
SPANS = Counter("icestream_gateway_spans_total", "Spans that Kafka acknowledged", ["format"])
MANY_OPERATIONS = CountedElsewhere(
    "icestream_gateway_many_operations_total", "Entry spans whose service had too many operations"
)
MANY_LABEL_SETS = CountedElsewhere(
    "icestream_gateway_many_label_sets_total",
    "Groups of spans whose labels were left out: their service had too many sets of labels of requests",
)
SENT_BYTES = Counter("icestream_gateway_sent_bytes_total", "Bytes that Kafka acknowledged, before compression")
REFUSED = Counter("icestream_gateway_refused_total", "Requests that were refused, by the code in the answer", ["code"])
DROPPED = Counter(
    "icestream_gateway_dropped_total",
    "What was not taken of profiles, spans and their labels, as the answers say it",
    ["what"],
)
SCRAPES = Counter(
    "icestream_gateway_scrapes_total", "Profiles that were scraped, by job and how it went", ["job", "result"]
)
SCRAPE_SECONDS = Histogram(
    "icestream_gateway_scrape_seconds",
    "Seconds from asking a target to the end of its answer, without those that the profile takes",
    ["job"],
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
SCRAPE_BYTES = Counter("icestream_gateway_scrape_bytes_total", "Bytes that targets answered", ["job"])
SCRAPE_TARGETS = Gauge("icestream_gateway_scrape_targets", "Targets of a job that are scraped", ["job"])
SCRAPE_DISCOVERY_FAILING = Gauge(
    "icestream_gateway_scrape_discovery_failing",
    "Files, URLs and names of a job that cannot say now which targets they have",
    ["job"],
)
SCRAPE_INVALID_TARGETS = Gauge(
    "icestream_gateway_scrape_invalid_targets",
    "Targets and groups of targets of a job that are not scraped, because what a list says of them is invalid",
    ["job"],
)
SCRAPE_LEFT_OUT = Gauge(
    "icestream_gateway_scrape_targets_left_out",
    "Targets of a job that are not scraped, because there are too many",
    ["job"],
)
SCRAPE_FAILING = Gauge(
    "icestream_gateway_scrape_failing", "Profiles of targets of a job whose last scrape failed", ["job"]
)
SCRAPE_WAITING = Gauge(
    "icestream_gateway_scrape_waiting_bytes", "Scraped profiles in memory that Kafka has not taken yet"
)
SCRAPE_DROPPED = Counter(
    "icestream_gateway_scrape_dropped_total", "Scraped profiles that were dropped because Kafka did not take them"
)
SCRAPE_RESTARTS = Counter(
    "icestream_gateway_scrape_restarts_total",
    "Cumulative profiles that had become smaller: the target restarted",
    ["job"],
)
