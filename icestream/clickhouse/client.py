"""Clients of ClickHouse: a server (`http://user:password@host:8123/database`) or the embedded engine (`chdb:///path`)."""

import fcntl
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import OperationalError
from urllib3.exceptions import HTTPError

from icestream.clickhouse import table_definitions
from icestream.process.loaded_code import drop_start_pages
from icestream.settings import SettingError

for _name in ("clickhouse_connect.driver", "urllib3.connectionpool"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # their warnings say what the exception says as well


class Clients:
    """Each client runs one query at a time, so threads share none. One process at most opens an embedded engine."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self._options = options
        self._local = threading.local()
        self._idle: list[Client] = []

    @contextmanager
    def borrowed(self) -> Iterator[Client]:
        """Lends a client for one query; after that, another thread may have it. For threads that come and go: a new
        client asks for all settings of ClickHouse, which takes longer than most queries. After an error, the client is
        closed; `discard` says why. Raises the same errors as `get`.
        """
        try:
            client = self._idle.pop()
        except IndexError:
            client = connect(self.dsn, **self._options)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._idle.append(client)

    def get(self) -> Client:
        """This thread's client. Raises clickhouse_connect's errors when the server cannot be reached."""
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = connect(self.dsn, **self._options)
        return client

    def discard(self) -> None:
        """Closes this thread's client. Call it after every query that failed: the embedded engine (chDB 26.9) puts what
        the failed query had already written in front of the connection's next result."""
        client = getattr(self._local, "client", None)
        if client is not None:
            self._local.client = None
            client.close()


def is_embedded(dsn: str) -> bool:
    """Whether it is the embedded engine."""
    return dsn.startswith("chdb:")


def embedded_folder(dsn: str) -> Path | None:
    """The folder of the embedded engine; None for a server, and for an engine that keeps everything in memory."""
    path = urlsplit(dsn).path
    return Path(path) if is_embedded(dsn) and path.strip("/") else None


def connect(dsn: str, **options: Any) -> Client:
    """A new client. For `chdb:///path` it makes the folder if it is missing; on a server the database must exist.
    Raises SettingError where it is no address, and clickhouse_connect's errors."""
    address = urlsplit(dsn)
    if is_embedded(dsn):
        if folder := embedded_folder(dsn):
            _prepare(folder)
    elif address.scheme not in ("http", "https") or not address.hostname:  # the client would take localhost
        shown = dsn.rpartition("@")[2]  # without a password
        raise SettingError(
            f"clickhouse: expected http(s)://USER:PASSWORD@HOST:PORT/DATABASE or chdb:///FOLDER, got {shown!r}"
        )
    else:
        options["interface"] = address.scheme  # of a DSN the client takes everything but this
    try:
        client = clickhouse_connect.get_client(dsn=dsn, **options)
    except TypeError as error:  # it takes what follows a "?" as its own arguments
        raise SettingError(f"clickhouse: {address.query!r}: {error}") from error
    except OperationalError as error:
        if isinstance(error.__cause__, HTTPError):
            server = address.netloc.rpartition("@")[2]
            raise OperationalError(f"no connection to {server}: {_root_cause(error)}") from error
        raise
    if is_embedded(dsn):
        _drop_start_of_engine()
    return client


def _root_cause(error: BaseException) -> str:
    """What the operating system or TLS said, which the client's message hides among others'."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error)


def _open_files() -> set[str]:
    paths = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it
            paths.add(os.readlink(file))
    return paths


def _prepare(folder: Path) -> None:
    """Makes the folder of an engine if it is missing, and puts damaged files right before the engine opens. Raises
    OperationalError."""
    status = folder / "status"  # which the engine locks
    if str(status.resolve()) in _open_files():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if status.exists():
            _refuse_locked(status)
        table_definitions.put_back(folder)
    except OSError as error:
        raise OperationalError(f"cannot use {folder}: {error}") from error


def _refuse_locked(status: Path) -> None:
    """Raises OperationalError where another process has the engine open, and OSError."""
    with open(status, encoding="ascii", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            user = re.search(r"PID: (\d+)", file.read())  # nothing, if the disk was full
            name = f"process {user[1]}" if user else "another process"
            raise OperationalError(
                f"{status.parent} is in use by {name}, and only one process can have it open"
            ) from None


@cache
def _drop_start_of_engine() -> None:
    """After the engine's start, 200 MB of its library are resident, and queries use 60 of them."""
    drop_start_pages()
