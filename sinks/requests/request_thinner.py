"""Thins the requests of old days (sinks/requests/thin_requests.py) for as long as the sinks run. In a thread of its
own: of a large fleet, a day takes hours, and rollups must not wait for that."""

import threading

from icestream.clickhouse.client import Clients
from sinks.clickhouse.disk_room import DiskRoom
from sinks.clickhouse.migrate import check
from sinks.requests.thin_requests import thin_requests
from sinks.runner.kafka_clock import Now
from sinks.runner.periodic import repeat


class RequestThinner:
    """Used by one thread."""

    def __init__(self, clients: Clients, request_days: int, now: Now, room: DiskRoom) -> None:
        """`request_days`: for how many days all requests are kept; `room`: of the disk."""
        self._clients = clients
        self._request_days = request_days
        self._now = now
        self._room = room

    def run(self, stop: threading.Event) -> None:
        """Blocks until `stop` is set."""
        repeat("thinning", self.step, self._clients, stop)

    def step(self, stop: threading.Event) -> None:
        """Thins one day, if there is one. Does nothing while the time is not known.

        Raises MigrationError, DiskFullError and the client's errors.
        """
        now = self._now()
        if now is None:
            return
        self._room.check()
        client = self._clients.get()
        thin_requests(client, int(now), self._request_days, stop, check(client, self._clients.dsn))
