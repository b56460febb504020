"""Submits a job to the process that can run it: this one, or the store that has the embedded ClickHouse open."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from clickhouse_connect.driver.exceptions import Error

from icestream.clickhouse.client import Clients
from icestream.process.progress import Progress
from jobs.job import Job, JobError, Outcome
from jobs.server import ask_server, socket_path
from sinks.clickhouse.migrate import shown
from sinks.settings import StorageSettings


def submit(job: Job, settings: StorageSettings, progress: Progress, flags: Sequence[str] = ()) -> Outcome:
    """Runs a job in the process that can run it. Raises JobError.

    `flags`: settings that were given for this job alone. A store that runs it has its own, so it is refused then.
    """
    job.check()
    path = socket_path(settings.clickhouse)
    if path is not None:
        if path.exists():
            with contextlib.suppress(ConnectionError, FileNotFoundError):  # a store that was killed left the socket
                return ask_server(path, job, progress, flags)
        if not path.parent.exists():  # connecting would make it
            raise JobError(
                f"there is no store in {path.parent}: give the --data or --clickhouse of the one that is meant"
            )
        _refuse_folder_of_other_user(path.parent)
    clients = Clients(settings.clickhouse)
    try:
        clients.get()
    except ImportError as error:
        raise JobError(f"{error}; or choose a ClickHouse server with --clickhouse") from error
    except Error as error:
        if path is None:
            raise JobError(f"{shown(settings.clickhouse)}: {error}") from error
        raise JobError(
            f"the embedded ClickHouse in {urlsplit(settings.clickhouse).path} does not open ({str(error)[:200]}). "
            "If another process has it open, end that one first"
        ) from error
    from jobs.run import run_job  # takes a second to import, which a job that the store runs does not spend here

    try:
        return run_job(job, settings, clients, progress)
    finally:
        clients.discard()


def _refuse_folder_of_other_user(folder: Path) -> None:
    """Root would follow that user's links, and leave files which that user's store cannot change. Raises JobError."""
    if os.geteuid() == 0 and folder.exists() and (uid := folder.stat().st_uid) != 0:
        raise JobError(
            f"no store runs, and {folder} belongs to another user than root (user ID {uid}): start `icestream up`, "
            f"which then runs the job, or run this as that user (sudo -u '#{uid}')"
        )
