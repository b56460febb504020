"""Metrics of the supervisor."""

from prometheus_client import Counter, Gauge

PART_READY = Gauge(
    "icestream_supervisor_part_ready", "1 while a part is ready, as of the last check of its /readyz", ["part"]
)
TOPICS_REMADE = Counter(
    "icestream_supervisor_topics_remade_total", "times a topic was missing and was made anew", ["topic"]
)
PART_STARTS = Counter("icestream_supervisor_part_starts_total", "times a part's process was started", ["part"])
