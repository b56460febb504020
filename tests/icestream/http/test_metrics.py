"""Health over HTTP for parts without a web server."""

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Counter

from icestream.http.metrics import CountedElsewhere, HealthServer
from tests.waiting import PATIENCE_S, wait_until

COUNTED = Counter("icestream_test_things_total", "Things of a test")
OTHER = Counter("icestream_api_other_total", "Things of another part")
KEPT = CountedElsewhere("icestream_supervisor_kept_total", "Things that something else counts", "kind")
totals = {"a": 0}
reasons: list[str | None] = [None]


@pytest.fixture
def url() -> Iterator[str]:
    server = HealthServer("127.0.0.1:0", lambda: reasons[0], "supervisor")
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


def test_it_listens_where_there_is_only_ipv6() -> None:
    server = HealthServer("[::1]:0", lambda: None, "supervisor")
    assert get(f"http://[::1]:{server.port}/healthz") == b'{"status": "ok"}'
    server.close()


def test_who_does_not_wait_for_the_answer_leaves_no_trace_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    asked, gone = threading.Event(), threading.Event()

    def ready() -> None:
        asked.set()
        gone.wait(PATIENCE_S)

    server = HealthServer("127.0.0.1:0", ready, "supervisor")
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
    client.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
    assert asked.wait(PATIENCE_S)
    client.close()
    gone.set()
    wait_until(lambda: not any("process_request_thread" in thread.name for thread in threading.enumerate()))
    server.close()
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_connections_that_ask_nothing_neither_pile_up_nor_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icestream.http.metrics._SLOWEST_S", 1.0)
    server = HealthServer("127.0.0.1:0", lambda: None, "supervisor")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
    assert len(threads) <= 32
    idle[-1].settimeout(PATIENCE_S)
    assert idle[-1].recv(1) == b""  # there was no room
    idle[0].settimeout(PATIENCE_S)
    assert idle[0].recv(1) == b""  # asked nothing for too long
    wait_until(lambda: answers(f"http://127.0.0.1:{server.port}/healthz"))
    for connection in idle:
        connection.close()
    server.close()


def answers(url: str) -> bool:
    try:
        return get(url) != b""
    except OSError:
        return False


def test_the_server_sleeps_until_a_request_comes(url: str) -> None:
    get(f"{url}/healthz")
    tid = [thread.native_id for thread in threading.enumerate() if thread.name == "health"][-1]

    def wake_ups() -> str:
        status = Path(f"/proc/self/task/{tid}/status").read_text()
        return next(line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))

    def sleeps_for_a_second() -> bool:
        before = wake_ups()
        time.sleep(1)
        return wake_ups() == before

    wait_until(sleeps_for_a_second)
    assert get(f"{url}/healthz")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return bytes(answer.read())


def test_a_total_that_something_else_keeps_is_a_counter_that_never_goes_down(url: str) -> None:
    KEPT.read(lambda: totals["a"], "a")
    KEPT.set_total(3, "b")
    totals["a"] = 5
    assert b'icestream_supervisor_kept_total{kind="a"} 5.0' in get(f"{url}/metrics")
    totals["a"] = 4
    text = get(f"{url}/metrics")
    assert b'icestream_supervisor_kept_total{kind="a"} 5.0' in text
    assert b'icestream_supervisor_kept_total{kind="b"} 3.0' in text
    assert b"# TYPE icestream_supervisor_kept_total counter" in text


def test_only_metrics_of_the_part_are_served_and_no_series_of_when_counting_began(url: str) -> None:
    OTHER.inc()
    text = get(f"{url}/metrics")
    assert b"icestream_api_other" not in text
    assert b"_created" not in text
    assert b"python_info" in text
