"""Health over HTTP for parts without a web server."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import Counter

from icestream.metrics import HealthServer

COUNTED = Counter("icestream_test_things_total", "Things of a test")
reasons: list[str | None] = [None]


@pytest.fixture
def url() -> Iterator[str]:
    server = HealthServer("127.0.0.1:0", lambda: reasons[0])
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def test_metrics_are_served(url: str) -> None:
    COUNTED.inc()
    assert b"icestream_test_things_total 1.0" in get(f"{url}/metrics")
    assert b"icestream_test_things_total 1.0" in get(f"{url}/metrics?name=x")


def test_what_is_not_ready_says_why(url: str) -> None:
    reasons[0] = None
    assert get(f"{url}/readyz") == b'{"status": "ready"}'
    reasons[0] = "waits for Kafka"
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        get(f"{url}/readyz")
    assert b"waits for Kafka" in caught.value.read()
    assert get(f"{url}/healthz") == b'{"status": "ok"}'


def test_other_paths_are_not_found(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{url}/")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())
