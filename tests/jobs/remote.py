"""A job in a process of its own, on the embedded engine of the process that started it; the engine has no server.

    python -m tests.jobs.remote ADDRESS ARCHIVE INPUTS STATEMENT LAKE

The process stops itself (SIGSTOP) after the first statement that begins with STATEMENT, or, where that is COMMIT TABLE,
right before the first commit to a table of the lake. Its lock lasts for a second. LAKE: the lake's folder, or empty.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.managers import BaseManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deltalake import DeltaTable, write_deltalake

from icestream.clickhouse.client import Clients
from icestream.topics import ACTIVITY, RAW
from jobs.backfill import backfill
from jobs.job import Job
from jobs.lake import rows as lake_rows
from jobs.lake.rows import JobLake
from jobs.locks import lock
from jobs.locks.lock import JobLock
from jobs.recompute.cut import ReadLimits
from jobs.recompute.slices import Work
from jobs.recompute.sources import ArchiveSource
from sinks.lake import delta
from streams.partition.process import Operators
from tests.jobs.stored import END, T0, Stored

_KEY = b"of a test"


class _Engine:
    """Runs the statements of the other process, each in a thread that has a client of its own."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def command(self, sql: str, **options: Any) -> None:
        self._clients.get().command(sql, **options)

    def query(self, sql: str, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(result_rows=self._clients.get().query(sql, **options).result_rows)

    def query_arrow(self, sql: str, **options: Any) -> Any:
        return self._clients.get().query_arrow(sql, **options)

    def insert(self, table: str, rows: Any, **options: Any) -> None:
        self._clients.get().insert(table, rows, **options)

    def insert_arrow(self, table: str, rows: Any, **options: Any) -> None:
        self._clients.get().insert_arrow(table, rows, **options)


class _Manager(BaseManager):
    """Gives the other process the engine."""


@contextmanager
def job_that_stops(clients: Clients, stored: Stored, statement: str) -> Iterator["subprocess.Popen[str]"]:
    """Starts a backfill in a process that stops itself after a statement."""
    _Manager.register("engine", callable=lambda: _Engine(clients))
    server = _Manager(("127.0.0.1", 0), _KEY).get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    arguments = [str(server.address[1]), str(stored.archive), str(stored.inputs), statement]
    arguments.append(stored.lake.uri if stored.lake else "")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.remote", *arguments],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Remote(Clients):
    """The one client of the engine in the process that started this one."""

    uri = "remote"

    def __init__(self, engine: Any, statement: str) -> None:
        super().__init__("remote")
        self._engine, self._statement = engine, statement

    def get(self) -> Any:
        return self

    def discard(self) -> None:
        pass

    def command(self, sql: str, **options: Any) -> None:
        self._engine.command(sql, **options)
        if sql.startswith(self._statement):
            os.kill(os.getpid(), signal.SIGSTOP)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _stop_before_commit(to: str) -> None:
    stopped: list[str] = []

    def commit(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        if table.table_uri.rstrip("/").endswith(f"/{to}") and not stopped:
            stopped.append(to)
            os.kill(os.getpid(), signal.SIGSTOP)
        write_deltalake(table, *arguments, **options)

    for module in (lake_rows, delta):
        module.write_deltalake = commit  # type: ignore[attr-defined]


def main(address: str, archive: str, inputs: str, statement: str, lake: str) -> None:
    lock.EXPIRE_S, lock.RENEW_S = 1, 0.1
    if statement.startswith("COMMIT "):
        _stop_before_commit(statement.removeprefix("COMMIT "))
    _Manager.register("engine")
    manager = _Manager(("127.0.0.1", int(address)), _KEY)
    manager.connect()
    clients = _Remote(manager.engine(), statement)  # type: ignore[attr-defined]
    job = Job(kind="backfill", start_unix_nano=T0, end_unix_nano=END, name="stopped")
    ends = {topic: {0: int(inputs), 1: int(inputs)} for topic in (RAW, ACTIVITY)}
    with JobLock(clients, job.full_name, job.time_range) as claim:
        source = ArchiveSource(archive, ReadLimits("C", ends))
        tables = JobLake(lake, partial(claim.check, clients.get())) if lake else None
        work = Work(clients.get(), source, Operators, job, check_lock=claim.check, fence=claim.fence, lake=tables)
        backfill(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
