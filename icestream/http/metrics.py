"""Metrics and health over HTTP: what /metrics says; /healthz and /readyz for parts without a web server."""

import http.server
import json
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST
PARTS = ("api", "collector", "flatten", "gateway", "sinks", "streams", "supervisor")
"""What has metrics of its own: their names begin with `icestream_PART_`."""

_SLOWEST_S = 10.0
"""How long a connection may wait for the rest of a request."""
_MOST_CONNECTIONS = 32

# They are one more series for each counter, and say when the process began to count.
disable_created_metrics()  # type: ignore[no-untyped-call]


class HealthServer:
    """Serves on a thread until `close`.

    `ready` returns None when the part can do its work, else the reason why not in words (503 on /readyz).
    """

    def __init__(self, listen: str, ready: Callable[[], str | None], part: str) -> None:
        """/metrics has the metrics of `part`."""
        host, _, port = listen.rpartition(":")

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _SLOWEST_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, exposition([part]), CONTENT_TYPE)
                elif path == "/healthz":
                    self._answer(200, b'{"status": "ok"}', "application/json")
                elif path == "/readyz":
                    reason = ready()
                    body = {"status": "ready"} if reason is None else {"status": "not ready", "reason": reason}
                    self._answer(200 if reason is None else 503, json.dumps(body).encode(), "application/json")
                else:
                    self._answer(404, b"try /metrics, /healthz or /readyz\n", "text/plain")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Requests are not logged."""

        self._server = _Server((host.strip("[]") or "127.0.0.1", int(port)), Handler)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on (chosen by the system where `listen` said 0)."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._closing = True
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        """Sleeps until a request comes: `serve_forever` would wake up twice a second, in every process."""
        while not self._closing:
            self._server.handle_request()


class _Server(http.server.ThreadingHTTPServer):
    """Takes few connections at once: each has a thread and an open file, and anybody on the host may connect."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing where whoever asked no longer waits for the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def exposition(parts: Collection[str]) -> bytes:
    """What /metrics answers in a process that runs `parts`, as CONTENT_TYPE.

    The metrics of other parts are left out. A process may have loaded their code, too: then these metrics stay at 0, or
    count what a job does, and would be taken for a second process of such a part.
    """
    others = tuple(f"icestream_{part}_" for part in PARTS if part not in parts)
    shown = CollectorRegistry(auto_describe=False)
    shown.register(_Families([family for family in REGISTRY.collect() if not family.name.startswith(others)]))
    return generate_latest(shown)


class _Families(Collector):
    """Metrics that were collected."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class CountedElsewhere(Collector):
    """A counter whose total somebody else keeps: the kernel, or a plain object. Registers itself.

    It never goes down, as the sum of what several processes used may for a moment: Prometheus would take that for a
    restart, and count everything again.
    """

    def __init__(self, name: str, documentation: str, label: str | None = None) -> None:
        """`name` ends in `_total`."""
        self._name, self._documentation = name, documentation
        self._labelnames = () if label is None else (label,)
        self._totals: dict[str, Callable[[], float]] = {}
        self._each: Callable[[], Mapping[str, float]] = dict
        self._highest: dict[str, float] = defaultdict(float)
        REGISTRY.register(self)

    def read(self, total: Callable[[], float], label_value: str = "") -> None:
        """From now on, every scrape calls `total`."""
        self._totals[label_value] = total

    def read_each(self, totals: Callable[[], Mapping[str, float]]) -> None:
        """From now on, every scrape calls `totals`, which returns the total of each label value that there is."""
        self._each = totals

    def set_total(self, total: float, label_value: str = "") -> None:
        """Says how many there are so far."""
        self.read(lambda: total, label_value)

    def describe(self) -> Iterable[Metric]:
        return [CounterMetricFamily(self._name, self._documentation, labels=self._labelnames)]

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labelnames)
        now = {label_value: total() for label_value, total in list(self._totals.items())} | dict(self._each())
        for label_value, total in now.items():
            highest = self._highest[label_value] = max(self._highest[label_value], total)
            family.add_metric([label_value][: len(self._labelnames)], highest)
        return [family]


def parse_metrics(text: str) -> dict[str, list[Sample]]:
    """The samples in the text that /metrics answers, by name; a counter's name ends in `_total`."""
    samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name].append(sample)
    return dict(samples)
