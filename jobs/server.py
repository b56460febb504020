"""Replay and backfill as jobs: run here, or, as the embedded ClickHouse is one process's, in the store that has it.

The store listens on a Unix socket beside the database (only its own user may connect). A client sends a job as one
line of JSON; it gets a line `{"part": 0.4, "text": "..."}` for each step, and last `{"done": [lines]}` or
`{"error": "..."}`.
"""

import contextlib
import dataclasses
import importlib
import json
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clickhouse_connect.driver.exceptions import Error

from icestream.clickhouse import Clients
from icestream.symcache import SymCaches
from jobs.backfill import backfill
from jobs.pipeline_lag import describe_lag
from jobs.replay import MARGIN_NS, JobError, Progress, replay
from jobs.source import SourceError, choose
from sinks.migrate import MigrationError, check, shown
from sinks.settings import SinkSettings
from streams.process import Operators
from streams.symbolize import Symbolizer

log = logging.getLogger(__name__)

_CONNECT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do; times are Unix nanoseconds."""

    kind: str  # replay, backfill
    start: int
    end: int
    source: str = "auto"
    dry_run: bool = False
    allow_missing: bool = False
    operators: str = ""  # MODULE:NAME of a streams.process.Operators; empty: ours


def submit(job: Job, settings: SinkSettings, progress: Progress) -> list[str]:
    """Runs a job where it can be run; what it did, in words. Raises JobError."""
    check_range(job)
    path = socket_path(settings.clickhouse)
    if path is not None and path.exists():
        with contextlib.suppress(ConnectionError, FileNotFoundError):  # left behind by a store that was killed
            return _ask(path, job, progress)
    clients = Clients(settings.clickhouse)
    try:
        clients.get()
    except Error as error:
        if path is None:
            raise JobError(f"{shown(settings.clickhouse)}: {error}") from error
        raise JobError(
            f"the embedded ClickHouse in {urlsplit(settings.clickhouse).path} does not open ({str(error)[:200]}). "
            "If another process has it open, end that one first"
        ) from error
    try:
        return run(job, settings, clients, progress)
    finally:
        clients.discard()


def check_range(job: Job) -> None:
    """Raises JobError for a range that is empty, or not over yet."""
    if job.start >= job.end:
        raise JobError("the range is empty: --from must be before --to")
    if job.end > time.time_ns() - MARGIN_NS:
        raise JobError(f"the range must have ended {MARGIN_NS // 10**9} s ago: later ones are still being written")


def run(job: Job, settings: SinkSettings, clients: Clients, progress: Progress) -> list[str]:
    """Runs a job in this process; what it did, in words. Raises JobError."""
    check_range(job)
    if (reason := describe_lag(settings, job.end)) is not None:
        raise JobError(reason)
    try:
        client = clients.get()
        check(client, settings.clickhouse)
        folder = Path(settings.archive) if settings.archive else None
        source = choose(job.source, settings, folder, job.start)
        log.info("%s from %s", job.kind, source)
        operators = _operators(job, settings)
        if job.kind == "replay":
            return replay(client, source, operators, job.start, job.end, job.dry_run, progress).lines(job.dry_run)
        return backfill(
            client, source, operators, job.start, job.end, job.allow_missing, job.operators, progress
        ).lines()
    except (MigrationError, SourceError, OSError, Error) as error:
        clients.discard()
        raise JobError(str(error)) from error


def _operators(job: Job, settings: SinkSettings) -> Operators:
    """Raises JobError."""
    if not job.operators:
        symcaches = SymCaches(Path(settings.symbol_cache).expanduser(), settings.symbol_store)
        return Operators(symbolize=Symbolizer(symcaches).names)
    module, _, name = job.operators.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"--operators {job.operators}: {error}") from error
    if not isinstance(found, Operators):
        raise JobError(f"--operators {job.operators}: expected a streams.process.Operators, got {type(found).__name__}")
    return found


class JobServer:
    """Runs jobs for others in this process, one at a time, until `close`."""

    def __init__(self, settings: SinkSettings, clients: Clients) -> None:
        """Listens where the database is embedded; elsewhere there is nothing to do."""
        self._settings = settings
        self._clients = clients
        self._busy = threading.Lock()
        self._socket: socket.socket | None = None
        self._path = socket_path(settings.clickhouse)
        if self._path is None:
            return
        self._path.unlink(missing_ok=True)  # nobody else has this database open, so nobody listens
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self._path))
        except OSError as error:  # a path of over 107 bytes, a file system without sockets
            log.warning("replay and backfill need the store to be stopped: cannot listen at %s: %s", self._path, error)
            return
        os.chmod(self._path, 0o600)
        self._socket.listen()
        threading.Thread(target=self._serve, args=(self._socket,), name="jobs", daemon=True).start()

    def close(self) -> None:
        """Stops listening; a job that runs is cut off with the process, and may be started again."""
        if self._socket is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            self._socket.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), name="job", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="utf-8") as stream, contextlib.suppress(BrokenPipeError):

            def say(**message: Any) -> None:
                stream.write(json.dumps(message) + "\n")
                stream.flush()

            if not self._busy.acquire(blocking=False):
                say(error="another replay or backfill is running")
                return
            try:
                job = Job(**json.loads(stream.readline(100_000)))
                say(done=run(job, self._settings, self._clients, lambda part, text: say(part=part, text=text)))
            except BrokenPipeError:
                log.warning("who asked for a job is gone: it was ended")
            except (JobError, ValueError, TypeError) as error:
                say(error=str(error))
            except Exception as error:
                log.exception("a job failed")
                say(error=f"{type(error).__name__}: {error}")
            finally:
                self._clients.discard()
                self._busy.release()


def socket_path(dsn: str) -> Path | None:
    """Where the store that has an embedded database open takes jobs; None for a server, which anybody can reach."""
    path = urlsplit(dsn).path
    return Path(path.rstrip("/") + ".jobs") if dsn.startswith("chdb:") and path.strip("/") else None


def _ask(path: Path, job: Job, progress: Progress) -> list[str]:
    """Has a job done by the store. Raises JobError, and ConnectionError where nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        connection.connect(str(path))
        connection.settimeout(None)
        with connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps(dataclasses.asdict(job)) + "\n")
            stream.flush()
            for line in stream:
                message = json.loads(line)
                if "error" in message:
                    raise JobError(message["error"])
                if "done" in message:
                    return [str(text) for text in message["done"]]
                progress(message["part"], message["text"])
    raise JobError("the store ended before the job did: start it, and the job, again")
