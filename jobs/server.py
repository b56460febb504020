"""The job server: the store runs jobs for others, because only one process can open the embedded ClickHouse.

It listens on a Unix socket in the folder of the database, which only its own user may connect to. A client sends a job
as one line of JSON. The answer is a line `{"share": 0.4, "text": "..."}` for each step, and at last
`{"done": [lines], "is_complete": true}` or `{"error": "..."}`.
"""

import contextlib
import dataclasses
import json
import logging
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icestream.clickhouse.client import Clients, embedded_folder
from icestream.process.progress import Progress
from jobs.job import Job, JobError, Outcome
from sinks.settings import StorageSettings

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_MAX_REQUEST_BYTES = 100_000


class JobServer:
    """Runs jobs for others in this process, one at a time, until `close`."""

    def __init__(self, settings: StorageSettings, clients: Clients) -> None:
        """Listens if the database is embedded; a client can reach any other database itself."""
        self._settings = settings
        self._clients = clients
        self._busy = threading.Lock()
        self._socket: socket.socket | None = None
        self._path = socket_path(settings.clickhouse)
        if self._path is None:
            return
        self._path.unlink(missing_ok=True)  # this process has the database open, so no other one listens
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self._path))
        except OSError as error:  # a path of over 107 bytes, a file system without sockets
            log.warning("stop the store to run replay and backfill: cannot listen at %s: %s", self._path, error)
            return
        os.chmod(self._path, 0o600)
        self._socket.listen()
        threading.Thread(target=self._serve, args=(self._socket,), name="jobs", daemon=True).start()

    def close(self) -> None:
        """Stops listening. The end of the process cuts off a running job, which can be started again."""
        if self._socket is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            self._socket.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), name="job", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        # First, because closing the stream sends what is left.
        with contextlib.suppress(BrokenPipeError), connection, connection.makefile("rw", encoding="utf-8") as stream:

            def send(**message: Any) -> None:
                stream.write(json.dumps(message) + "\n")
                stream.flush()

            if not self._busy.acquire(blocking=False):
                send(error="another replay or backfill is running")
                return
            try:
                from jobs.run import run_job  # takes a second to import, which a store without jobs does not spend

                job = Job(**json.loads(stream.readline(_MAX_REQUEST_BYTES)))
                outcome = run_job(job, self._settings, self._clients, lambda share, text: send(share=share, text=text))
                send(done=outcome.lines, is_complete=outcome.is_complete)
            except BrokenPipeError:
                log.warning("the client of a job has disconnected: the job was stopped")
            except (JobError, ValueError, TypeError) as error:
                send(error=str(error))
            except Exception as error:
                log.exception("a job failed")
                send(error=f"{type(error).__name__}: {error}")
            finally:
                self._clients.discard()
                self._busy.release()


def socket_path(dsn: str) -> Path | None:
    """Returns where the store with this embedded database takes jobs; None for a ClickHouse server."""
    folder = embedded_folder(dsn)
    return folder / "jobs.sock" if folder else None


def ask_server(path: Path, job: Job, progress: Progress, flags: Sequence[str] = ()) -> Outcome:
    """Has the job server run a job. Raises JobError, also if there are `flags`, which the server would ignore, and
    ConnectionError if no server listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
        connection.settimeout(None)
        if flags:
            raise JobError(
                f"the running store runs this job, with its own settings: leave out {', '.join(flags)}, or stop the"
                " store"
            )
        with connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps(dataclasses.asdict(job)) + "\n")
            stream.flush()
            for line in stream:
                message = json.loads(line)
                if "error" in message:
                    raise JobError(message["error"])
                if "done" in message:
                    return Outcome(message["done"], message["is_complete"])
                progress(message["share"], message["text"])
    raise JobError("the store ended before the job was done: start the store and the job again")
