"""Locks: two jobs never work on overlapping time ranges of one store at the same time.

A job claims its range with a row in the table `job_locks`, and only then looks for claims of others: of two jobs that
start together, at least one sees the other and gives up. It renews its claim until it ends. A claim ends with its
process, if that ran on this host, or else when it expires. The job that takes over fences its owner
(jobs/locks/fence.py).
"""

import os
import socket
import threading
import uuid
from types import TracebackType
from typing import NamedTuple, Self

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from jobs.job import JobError
from jobs.locks.fence import ENDED_SQL, Fence, end_statements
from jobs.staging.staging import insert_settings
from jobs.time_range import END_SQL, START_SQL, JobTimeRange
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, of_all_replicas

RENEW_S = 10.0
EXPIRE_S = 60


class _Claim(NamedTuple):
    owner: str
    job: str
    process: str  # see `_process`
    left_s: int


class JobLock:
    """The claim of one run of a job; a context manager. Entering it raises JobError if another job is in the way."""

    def __init__(self, clients: Clients, name: str, time_range: JobTimeRange, cluster: Cluster = ONE_SERVER) -> None:
        self._clients = clients
        self._name = name
        self._time_range = time_range
        self._owner = uuid.uuid4().hex
        self._cluster = cluster
        self.fence = Fence(self._owner, cluster)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="job lock", daemon=True)

    def __enter__(self) -> Self:
        client = self._clients.get()
        self._claim(client, EXPIRE_S)
        others = [
            claim for claim in self._live_claims(client) if claim.owner != self._owner and not _is_dead(claim.process)
        ]
        if others:
            self._release(client)
            other = others[0]
            host, _, pid = other.process.split("/")
            raise JobError(
                f"the job {other.job} works on this time range (process {pid} on {host}): wait for it or end it; "
                f"if that host is gone, its lock expires in {other.left_s} s"
            )
        self._take_over(client)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._release(self._clients.get())

    def check(self, client: Client) -> None:
        """Raises JobError if the claim has expired, as after this process was frozen: another job may have begun."""
        if self._owner not in {claim.owner for claim in self._live_claims(client)}:
            raise JobError(f"the job {self._name} stood still and lost its lock: start it again")

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_S):
            try:
                self.check(self._clients.get())
                self._claim(self._clients.get(), EXPIRE_S)
            except Exception:  # the job itself finds out, see `check`
                self._clients.discard()
        self._clients.discard()

    def _release(self, client: Client) -> None:
        self._claim(client, 0)

    def _take_over(self, client: Client) -> None:
        """Fences the owners that did not give back their claims on this range: they were killed, or stand still."""
        owners = [claim.owner for claim in self._claims(client, "1") if claim.owner != self._owner]
        if owners:
            client.command(
                "INSERT INTO job_locks (owner, job, process, start_time, end_time, expires_time)"
                f" SELECT owner, any(job), any(process), any(start_time), any(end_time), {ENDED_SQL}"
                f" FROM {of_all_replicas('job_locks', self._cluster)}"
                " WHERE owner IN {owners:Array(String)} GROUP BY owner",
                parameters={"owners": owners},
                settings=insert_settings(self._cluster),
            )
        for owner in owners:
            end_statements(client, owner, self._cluster)

    def _claim(self, client: Client, seconds: int) -> None:
        """Adds a row that expires after `seconds`; 0 ends the claim."""
        client.command(
            "INSERT INTO job_locks (owner, job, process, start_time, end_time, expires_time)"
            f" SELECT {{owner:String}}, {{job:String}}, {{process:String}}, {START_SQL}, {END_SQL},"
            f" if({{seconds:UInt32}} = 0, {ENDED_SQL}, now64(3) + toIntervalSecond({{seconds:UInt32}}))",
            parameters=self._time_range.parameters
            | {"owner": self._owner, "job": self._name, "process": _process(os.getpid()), "seconds": seconds},
            settings=insert_settings(self._cluster),
        )

    def _live_claims(self, client: Client) -> list[_Claim]:
        """Returns the claims that may not be taken over, see `_claims`."""
        return self._claims(client, "max(expires_time) > now64(3)")

    def _claims(self, client: Client, condition: str) -> list[_Claim]:
        """Returns the claims on this range, or of a job of this name, that were not given back or taken over."""
        rows = client.query(
            "SELECT owner, any(job), any(process), toInt64(dateDiff('second', now64(3), max(expires_time)))"
            f" FROM {of_all_replicas('job_locks', self._cluster)}"
            f" WHERE job = {{job:String}} OR (start_time < {END_SQL} AND end_time > {START_SQL})"
            " GROUP BY owner"
            f" HAVING min(expires_time) > {ENDED_SQL} AND {condition} ORDER BY owner",
            parameters=self._time_range.parameters | {"job": self._name},
        ).result_rows
        return [_Claim(*row) for row in rows]


def _process(pid: int | str) -> str:
    """Returns host, PID namespace and process ID."""
    return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}/{pid}"


def _is_dead(process: str) -> bool:
    """Returns whether a process of this host has ended."""
    pid = process.rsplit("/", 1)[-1]
    if process != _process(pid):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
