"""The API's metrics for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "icestream_api_requests_total", "requests answered, by route (as in /openapi.json) and status", ["route", "status"]
)
SECONDS = Histogram(
    "icestream_api_request_seconds",
    "time from a request to the end of its answer, including the wait for other queries",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
RUNNING = Gauge("icestream_api_queries_running", "queries that are being answered")
WAITING = Gauge("icestream_api_queries_waiting", "queries that wait for other queries to end")
CLICKHOUSE_SECONDS = Histogram(
    "icestream_api_clickhouse_seconds",
    "time of one query of ClickHouse",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
CLICKHOUSE_ERRORS = Counter("icestream_api_clickhouse_errors_total", "queries of ClickHouse that failed")
NODES = Gauge("icestream_api_cached_nodes", "nodes of the call tree in memory")
STACKS = Counter("icestream_api_stacks_total", "stacks looked up, by result", ["result"])
"""Results: `hit` (in memory), `read` (from ClickHouse), `unresolved` (not stored yet)."""
