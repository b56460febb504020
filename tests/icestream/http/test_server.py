"""Clients that begin requests and do not go on."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx2
import pytest
from fastapi import FastAPI

from icestream.http import head_deadline
from icestream.http.server import Server
from tests.waiting import PATIENCE_S, wait_until

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
FEW = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from fastapi import FastAPI
from icestream.http.server import Server
app = FastAPI()
app.get("/")(lambda: "here")
server = Server(app, "127.0.0.1:0")
server.start()
print(server.address, flush=True)
input()
server.close()
"""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(head_deadline, "HEAD_S", 0.5)
    app = FastAPI()
    app.get("/")(lambda: "here")
    server = Server(app, "127.0.0.1:0")
    server.start()
    yield server.address
    server.close()


def connect(address: str, sent: bytes = b"") -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n"], ids=["nothing", "a part", "a request before"])
def test_a_head_that_does_not_come_is_given_up(address: str, sent: bytes) -> None:
    with connect(address, sent) as connection:
        if sent.endswith(b"\r\n\r\n"):
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            connection.sendall(HEAD)
        started = time.monotonic()
        assert connection.recv(1000) == b""
        assert time.monotonic() - started < PATIENCE_S / 2


def test_a_head_that_comes_byte_after_byte_is_given_up(address: str) -> None:
    with connect(address) as connection:
        connection.settimeout(0.05)

        def closed() -> bool:
            try:
                connection.sendall(b"G")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(closed)


def test_a_connection_is_kept_between_requests(address: str) -> None:
    with connect(address) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            time.sleep(1.0)  # longer than a head may take


def test_unfinished_heads_do_not_shut_out_others() -> None:
    """There are more of them than the process may have descriptors: clients were reset while they stayed."""
    process = subprocess.Popen([sys.executable, "-c", FEW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    unfinished = [connect(address, HEAD) for _ in range(300)]
    for _ in range(3):
        started = time.monotonic()
        assert httpx2.get(f"http://{address}/", timeout=PATIENCE_S).json() == "here"
        assert time.monotonic() - started < head_deadline.HEAD_S / 2
    for connection in unfinished:
        connection.close()
    process.communicate("\n", timeout=PATIENCE_S)
