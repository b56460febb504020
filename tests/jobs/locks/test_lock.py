"""Two jobs never work on overlapping time ranges of one store."""

import os
import subprocess
import sys

import pytest

from icestream.clickhouse.client import Clients
from jobs.job import JobError
from jobs.locks import lock as module
from jobs.locks.lock import JobLock
from jobs.time_range import JobTimeRange
from tests.sinks.engine import clients, empty
from tests.waiting import wait_until

__all__ = ["clients", "empty"]

pytestmark = pytest.mark.pipeline

HOUR = 3600 * 10**9
FIRST = JobTimeRange(0, HOUR)


def test_an_overlapping_range_is_refused_by_the_name_of_the_other_job_until_that_ends(clients: Clients) -> None:
    with JobLock(clients, "one", FIRST) as one:
        with pytest.raises(JobError, match="the job one works on this time range"):
            JobLock(clients, "two", JobTimeRange(HOUR // 2, 2 * HOUR)).__enter__()
        with pytest.raises(JobError, match="the job one"):
            JobLock(clients, "one", JobTimeRange(5 * HOUR, 6 * HOUR)).__enter__()
        with JobLock(clients, "two", JobTimeRange(HOUR, 2 * HOUR)):
            one.check(clients.get())
    with JobLock(clients, "two", JobTimeRange(HOUR // 2, 2 * HOUR)):
        pass


def test_the_lock_of_a_dead_process_of_this_host_and_an_expired_one_are_free(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = module._process(os.getpid())
    monkeypatch.setattr(module, "_process", lambda pid: own.rsplit("/", 1)[0] + f"/{dead.pid}")
    killed = JobLock(clients, "killed", FIRST)
    killed._claim(clients.get(), 60)  # a process that was killed leaves its claim behind
    monkeypatch.setattr(module, "_process", lambda pid: f"elsewhere/1/{pid}")
    expired = JobLock(clients, "expired", FIRST)
    expired._claim(clients.get(), 1)
    monkeypatch.undo()
    wait_until(lambda: expired._owner not in {claim[0] for claim in expired._live_claims(clients.get())})
    with JobLock(clients, "next", FIRST):
        pass
    monkeypatch.setattr(module, "_process", lambda pid: f"elsewhere/1/{pid}")
    JobLock(clients, "remote", FIRST)._claim(clients.get(), 60)
    monkeypatch.undo()
    with pytest.raises(JobError, match=r"remote .* on elsewhere"):
        JobLock(clients, "next", FIRST).__enter__()


def test_a_job_that_lost_its_lock_may_not_write(clients: Clients) -> None:
    with JobLock(clients, "frozen", FIRST) as lock:
        clients.get().command("TRUNCATE TABLE job_locks")
        with pytest.raises(JobError, match="lost its lock"):
            lock.check(clients.get())
