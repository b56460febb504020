"""Serves an application over HTTP or HTTPS, in a thread."""

import logging
import socket
import ssl
import threading
from collections import deque

import uvicorn
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from icestream.http.head_deadline import HeadDeadline
from icestream.http.room import Room
from icestream.process.descriptors import raise_limit

_GRACE_S = 5
_KEEP_ALIVE_S = 75
"""Longer than the pauses of regular senders, as exporters of spans send every 5 s: otherwise they would often send
into a connection that is being closed."""

DESCRIPTORS = 16_384
"""That are asked for. Half of those that a process gets may be connections without a request."""

_log = logging.getLogger(__name__)


class ServerError(Exception):
    """The server cannot listen. The message says on which address, and why."""


class Server:
    """Listens from its construction on, and answers after `start`."""

    def __init__(self, app: FastAPI, listen: str, tls: ssl.SSLContext | None = None) -> None:
        build_routes(app)
        self._socket = _listen(listen)

        class Connection(HeadDeadline):
            room = Room(min(raise_limit(DESCRIPTORS), DESCRIPTORS) // 2)

        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            lifespan="off",
            ssl_context_factory=(lambda config, default: tls) if tls else None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT as bound: the real port if port 0 was asked for."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Accepts no more requests, and returns once pending ones are answered, or after 5 s."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_GRACE_S + 2)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def build_routes(app: FastAPI) -> None:
    """FastAPI otherwise builds routes and their description at the first requests: a quarter of a second."""
    deque(iter_route_contexts(app.routes), maxlen=0)
    app.openapi()


def serve(app: FastAPI, listen: str, stop: threading.Event, what: str, tls: ssl.SSLContext | None = None) -> None:
    """Serves until `stop` is set. `what` is served, for the log. Raises ServerError if it cannot listen."""
    server = Server(app, listen, tls)
    server.start()
    _log.info("serving %s at %s://%s", what, "https" if tls else "http", server.address)
    try:
        while server.alive() and not stop.wait(1.0):
            pass
    finally:
        server.close()


def _listen(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
    except (OSError, ValueError, OverflowError) as error:
        raise ServerError(f"cannot listen on {listen}: {error}") from None
