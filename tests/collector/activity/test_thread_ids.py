"""Which threads a process may speak for."""

import os
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collector.activity import thread_ids
from collector.activity.quotas import PROCESS_SHARE, user_share
from collector.activity.read_pauses import ReadPauses
from collector.activity.thread_ids import ThreadIds

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
SECOND = 10**9


def _of_host(ids: ThreadIds, pid: int, tid: int, ago_ns: int = 0) -> int:
    """What becomes of an interval that process `pid` reports of a thread."""
    return _of_host_at(ids, pid, tid, time.monotonic_ns() - ago_ns)


def _of_host_at(ids: ThreadIds, pid: int, tid: int, start_monotonic_ns: int) -> int:
    starts = np.array([start_monotonic_ns], np.uint64)
    return int(ids.of_host(pid, 0, np.array([tid], np.uint32), starts, pid).tid[0])


def _ended() -> int:
    """The ID of a process that ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def _process_with_id(pid: int) -> subprocess.Popen[bytes] | None:
    LAST_PID.write_text(str(pid - 1))
    process = subprocess.Popen(["sleep", "1000"])
    if process.pid == pid:
        return process
    process.kill()
    process.wait()
    return None


def test_a_claim_to_a_thread_that_does_not_exist_yet_is_not_remembered() -> None:
    if not os.access(LAST_PID, os.W_OK):
        pytest.skip("needs root")
    for _ in range(100):  # somebody else may be faster
        ids, tid = ThreadIds(), _ended()
        assert _of_host(ids, os.getpid(), tid) == tid  # it may have been one of ours
        victim = _process_with_id(tid)
        if victim:
            assert _of_host(ids, os.getpid(), tid) == 0
            victim.kill()
            victim.wait()
            return
    pytest.fail("no process got the ID that was wanted")


def test_a_process_has_no_activity_from_before_it_began() -> None:
    """Its ID was another process's then, whose samples still wait for their trace."""
    ids = ThreadIds()
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert _of_host(ids, process.pid, process.pid, ago_ns=SECOND // 1000) == process.pid
        assert _of_host(ids, process.pid, process.pid, ago_ns=60 * SECOND) == 0
        process.kill()


def test_a_process_that_got_the_id_of_another_does_not_get_its_past() -> None:
    if not os.access(LAST_PID, os.W_OK):
        pytest.skip("needs root")
    for _ in range(100):
        ids = ThreadIds()
        with subprocess.Popen(["sleep", "1000"]) as victim:
            assert _of_host(ids, victim.pid, victim.pid) == victim.pid
            worked_ns = time.monotonic_ns()
            time.sleep(0.1)  # processes begin in ticks of 10 ms
            victim.kill()
        attacker = _process_with_id(victim.pid)
        if attacker:
            assert _of_host(ids, attacker.pid, victim.pid) == attacker.pid
            assert _of_host_at(ids, attacker.pid, victim.pid, worked_ns) == 0
            attacker.kill()
            attacker.wait()
            return
    pytest.fail("no process got the ID that was wanted")


def test_a_process_that_ended_before_it_was_seen_has_activity_of_its_last_second_only() -> None:
    ids, pid = ThreadIds(), _ended()
    assert _of_host(ids, pid, pid, ago_ns=SECOND // 10) == pid
    assert _of_host(ids, pid, pid, ago_ns=2 * SECOND) == 0


def test_what_a_process_sent_before_it_ended_is_still_its_own() -> None:
    ids = ThreadIds()
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert _of_host(ids, process.pid, process.pid) == process.pid
        began = time.monotonic_ns()
        process.kill()
    assert _of_host(ids, process.pid, process.pid, ago_ns=time.monotonic_ns() - began) == process.pid


def test_one_datagram_makes_us_look_for_a_thousand_threads_at_most() -> None:
    tids = np.arange(2**22 + 1, 2**22 + 5001, dtype=np.uint32)  # above what the kernel gives
    starts = np.full(len(tids), time.monotonic_ns(), np.uint64)
    assert np.count_nonzero(ThreadIds().of_host(os.getpid(), 0, tids, starts, os.getpid()).tid) == 1024


NOBODY, READ_S = 2**22 + 1, 0.005  # the kernel gives no such process ID; how long each read takes in these tests


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of threads that were read; each takes READ_S at least."""
    made: list[str] = []

    def listdir(path: str) -> list[str]:
        made.append(path)
        time.sleep(READ_S)
        return []

    monkeypatch.setattr(os, "listdir", listdir)
    return made


def _flood(pid_and_claim: Callable[[int], tuple[int, int]]) -> float:
    """Sends datagrams with a thread that does not exist for 0.3 s; returns how long it took."""
    ids, tids = ThreadIds(), np.array([NOBODY], np.uint32)
    began, number = time.monotonic(), 0
    while time.monotonic() < began + 0.3:
        pid, claimed = pid_and_claim(number)
        ids.of_host(pid, 1000, tids, np.zeros(1, np.uint64), claimed)
        number += 1
    return time.monotonic() - began


def test_a_process_that_calls_itself_something_else_each_time_has_its_threads_read_no_more_often(
    reads: list[str],
) -> None:
    took = _flood(lambda number: (os.getpid(), number % 2))
    assert 1 <= len(reads) <= took * PROCESS_SHARE / READ_S + 1


def test_a_process_that_is_forgotten_at_once_has_its_threads_read_no_more_often(
    reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_ids, "_MOST_BYTES", 1)
    took = _flood(lambda number: (os.getpid(), 1))
    assert 1 <= len(reads) <= took * PROCESS_SHARE / READ_S + 1


def test_many_processes_of_a_user_have_their_threads_read_for_the_share_of_one_user(reads: list[str]) -> None:
    took = _flood(lambda number: (NOBODY + number, 1))
    assert 1 <= len(reads) <= took * user_share(os.cpu_count() or 1) / READ_S + 1


def test_a_pause_holds_up_its_process_and_its_user_only() -> None:
    pauses = ReadPauses(user_share=0.001)
    pauses.add(1, 5, 1000, time.monotonic() - 10)
    assert not pauses.allow(1, 5, 1001)
    assert not pauses.allow(2, 5, 1000)
    assert pauses.allow(1, 6, 1001)  # a later process with the same ID
    assert pauses.allow(2, 5, 1001)


def test_pauses_that_are_over_are_forgotten() -> None:
    pauses = ReadPauses(user_share=0.1)
    for pid in range(10_000):
        pauses.add(pid, 1, pid, time.monotonic())
    assert len(pauses._until) < 2000


def test_threads_of_all_processes_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process with very many threads, and very many processes with a few."""
    monkeypatch.setattr(os.path, "exists", lambda path: True)  # every thread that a process names
    limit, none = 500_000, 2**22 + 1  # the kernel gives no such process ID
    monkeypatch.setattr(thread_ids, "_MOST_BYTES", limit)
    monkeypatch.setattr(thread_ids, "_MOST_THREADS", 800)
    starts = np.zeros(1000, np.uint64)
    tracemalloc.start()
    try:
        ids = ThreadIds()
        for first in range(1000, 20_000, 1000):
            ids.of_host(none, 0, np.arange(first, first + 1000, dtype=np.uint32), starts, none)
        for pid in range(none + 1, none + 1000):
            ids.of_host(pid, 0, np.arange(1000, 1010, dtype=np.uint32), starts[:10], pid)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit // 3 < size < limit * 1.2


def test_processes_are_forgotten_after_a_while_and_not_gone_through_for_each_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, none = 0.0, 2**22 + 1  # the kernel gives no such process ID
    monkeypatch.setattr(time, "monotonic", lambda: now)
    ids = ThreadIds()
    passes = 0

    def items() -> list[tuple[int, object]]:
        nonlocal passes
        passes += 1
        return all_items()

    all_items = ids._processes.items
    monkeypatch.setattr(ids._processes, "items", items)
    for pid in range(none, none + 1000):
        _of_host(ids, pid, 1)
    assert (len(all_items()), passes) == (1000, 1)
    now = 61.0
    _of_host(ids, none + 1000, 1)
    assert (len(all_items()), passes) == (1, 2)
