"""Metrics and health over HTTP: /metrics, /healthz and /readyz for parts without a web server; reading /metrics."""

import http.server
import json
import threading
from collections import defaultdict
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class HealthServer:
    """Serves on a thread until `close`.

    `ready` returns None when the part can do its work, else the reason why not in words (503 on /readyz).
    """

    def __init__(self, listen: str, ready: Callable[[], str | None]) -> None:
        host, _, port = listen.rpartition(":")

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
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

        self._server = http.server.ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on (chosen by the system where `listen` said 0)."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def parse_metrics(text: str) -> dict[str, list[Sample]]:
    """The samples in the text that /metrics answers, by name; a counter's name ends in `_total`."""
    samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name].append(sample)
    return dict(samples)
