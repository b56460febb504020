"""Clients of ClickHouse: a server (`http://user:password@host:8123/database`) or the embedded engine (`chdb:///path`)."""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client


class Clients:
    """One client a thread: a client serialises its calls, and the embedded engine is one process's only."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self._options = options
        self._local = threading.local()

    def get(self) -> Client:
        """This thread's client. Raises clickhouse_connect's errors when the server cannot be reached."""
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = connect(self.dsn, **self._options)
        return client

    def discard(self) -> None:
        """Closes this thread's client. After a query that failed, always: the embedded engine (chDB 26.9) puts what the
        failed query had already written in front of the next result of the same connection."""
        client = getattr(self._local, "client", None)
        if client is not None:
            self._local.client = None
            client.close()


def connect(dsn: str, **options: Any) -> Client:
    """A new client. For `chdb:///path` the folder is made where it is missing; for a server the database must exist."""
    if dsn.startswith("chdb:"):
        path = urlsplit(dsn).path
        if path:
            Path(path).mkdir(parents=True, exist_ok=True)
    return clickhouse_connect.get_client(dsn=dsn, **options)
