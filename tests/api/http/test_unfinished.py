"""Requests that are begun and do not go on."""

import socket
import time

import pytest

from api.http.app import create_app
from api.http.middleware import limit_queries
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from tests.waiting import PATIENCE_S, readable, wait_until

UNFINISHED = b"POST /api/v1/merge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.slow
def test_bodies_that_do_not_come_shut_out_nobody() -> None:
    """More than may be on their way: some are given up at once, and not when their time is over."""
    server = Server(create_app(ApiSettings(), Clients("http://127.0.0.1:1/default")), "127.0.0.1:0")
    server.start()
    host, _, port = server.address.rpartition(":")
    slow = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(260)]
    started = time.monotonic()
    for connection in slow:
        connection.sendall(UNFINISHED)
    wait_until(lambda: len(readable(slow)) >= 4)
    assert time.monotonic() - started < limit_queries._BODY_S / 2
    assert all(connection.recv(1000).startswith(b"HTTP/1.1 408") for connection in readable(slow))
    for connection in slow:
        connection.close()
    server.close()
