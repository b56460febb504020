"""Clients that send or read slowly hold up nobody: with a real server, whose limit is one query at a time."""

import json
import socket
import time
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from api.http.middleware import limit_queries
from api.http.middleware.limit_queries import LimitQueries
from icestream.http.server import Server
from tests.waiting import PATIENCE_S, wait_until

PATH = "/api/v1/anything"
PART, PARTS = bytes(1_000_000), 60
started: list[str] = []


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers what was sent, or a lot."""
    started.append(scope["path"])
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    if scope["path"].endswith("/large"):
        for _ in range(PARTS):
            await send({"type": "http.response.body", "body": PART, "more_body": True})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(limit_queries, "_STALL_S", 0.1)
    monkeypatch.setattr("icestream.http.server.build_routes", lambda app: None)
    started.clear()
    server = Server(LimitQueries(app, running=1, waiting=10), "127.0.0.1:0")  # type: ignore[arg-type]
    server.start()
    host, _, port = server.address.rpartition(":")
    yield host, int(port)
    server.close()


def connect(address: tuple[str, int], request: str) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE_S)
    made.connect(address)
    made.sendall(request.replace("\n", "\r\n").encode())
    return made


def ask(address: tuple[str, int]) -> bytes:
    with connect(address, f"POST {PATH} HTTP/1.0\nHost: a\nContent-Length: 5\n\nhello") as made:
        return read_all(made)


def read_all(made: socket.socket) -> bytes:
    found = bytearray()
    while data := made.recv(1 << 20):
        found += data
    return bytes(found)


def test_a_body_that_does_not_come_takes_no_turn(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_queries, "_BODY_S", 2.0)
    slow = [connect(address, f"POST {PATH}/slow HTTP/1.0\nHost: a\nContent-Length: 9\n\n{{") for _ in range(4)]
    time.sleep(0.1)
    assert ask(address).endswith(b"hello")
    for made in slow:
        answer = read_all(made)
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_slow"
    assert started == [PATH]


@pytest.mark.slow
def test_who_does_not_read_the_answer_keeps_no_turn_and_gets_all_of_it_later(address: tuple[str, int]) -> None:
    slow = connect(address, f"GET {PATH}/large HTTP/1.0\nHost: a\n\n")
    wait_until(lambda: started == [f"{PATH}/large"])
    assert ask(address).endswith(b"hello")
    assert len(read_all(slow)) > PARTS * len(PART)


def test_who_never_reads_the_answer_is_given_up(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_queries, "_MAX_STALL_S", 0.2)
    slow = connect(address, f"GET {PATH}/large HTTP/1.0\nHost: a\n\n")
    wait_until(lambda: started == [f"{PATH}/large"])
    time.sleep(1)
    assert ask(address).endswith(b"hello")
    assert len(read_all(slow)) < PARTS * len(PART)


def test_a_long_body_is_the_route_s_to_refuse(address: tuple[str, int]) -> None:
    size = 5_000_000
    head = f"POST {PATH} HTTP/1.0\nHost: a\nContent-Length: {size}\n\n"
    with connect(address, head) as made:
        made.sendall(bytes(size))
        assert read_all(made).endswith(bytes(size))


def test_a_client_that_goes_away_while_it_sends_starts_nothing(address: tuple[str, int]) -> None:
    connect(address, f"POST {PATH}/gone HTTP/1.0\nHost: a\nContent-Length: 9\n\n{{").close()
    assert ask(address).endswith(b"hello")
    assert started.count(PATH) == 1
