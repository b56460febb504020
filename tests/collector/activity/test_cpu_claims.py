"""A user without rights claims CPU time that no process of that user has used."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from collector.activity import cpu_claims
from collector.activity.activity_datagram import decode
from collector.activity.activity_socket import ActivityReceiver
from collector.activity.cpu_claims import Bounded, CpuClaims
from collector.activity.thread_ids import HostThreads
from icestream.tracing.datagram import IntervalColumns, datagrams
from icestream.tracing.threads import Context
from tests.collector.activity.flooding import ATTACKER, OTHER, open_folder, send
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

SECOND = 10**9
CONTEXT = Context(bytes(range(1, 25)) + bytes(4))

CLAIM = """
import os, socket, struct, sys, time
sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sending.connect(sys.argv[1])
def claim(rows):
    n, me = len(rows), os.getpid()
    header = struct.pack("<4sHHIIIIIIIIQ", b"ICEA", 1, 0, me, 1, n, 0, 0, 4, 0, 0, 0)
    columns = [struct.pack(f"<{n}Q", *column) for column in list(zip(*rows))[:3]]
    columns += [struct.pack(f"<{n}I", *[row[3] for row in rows]), struct.pack(f"<{n}I", *[0] * n)]
    sending.send(header + b"".join(columns) + bytes(range(1, 25)) + b"evil")
me, start = os.getpid(), time.monotonic_ns()
while time.process_time() < 0.3:
    pass
now = time.monotonic_ns()
"""
ATTACKS = {
    "one interval many times": "for _ in range(100): claim([(start, now - start, now - start, me)] * 20)",
    "overlapping intervals": "claim([(start + i, now - start - i, now - start - i, me) for i in range(1000)])",
    "threads that have ended": "claim([(start, now - start, now - start, 2**22 - i) for i in range(1000)])",
    "threads of other processes": "claim([(start, now - start, now - start, 1)] * 1000)",
    "more than there was time": "claim([(start + i * 100, 0, 1000000, me) for i in range(1000)])",
    "idle time": "time.sleep(1.5); now = time.monotonic_ns(); claim([(start, now - start, now - start, me)])",
    "in a PID namespace": "me = 7\nclaim([(start, now - start, now - start, i) for i in range(1000)])",
}


@dataclass(frozen=True)
class Claimed:
    """What is left of it, and what the process has used."""

    cpu_ns: int
    used_ns: int
    intervals: list[tuple[int, int, int]]  # thread, start and end


@pytest.fixture
def receiver() -> Iterator[ActivityReceiver]:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with open_folder() as folder:
        receiver = ActivityReceiver(folder / "activity.sock")
        yield receiver
        receiver.close()


@pytest.fixture
def claimed(receiver: ActivityReceiver) -> Callable[[str], Claimed]:
    """Runs an attack as another user."""

    def claimed(attack: str) -> Claimed:
        program = shutil.which("python3", path="/usr/bin") or sys.executable
        code = f"{CLAIM}\n{attack}\nprint(flush=True)\ninput()"
        with subprocess.Popen(
            [program, "-c", code, str(receiver.path)], user=ATTACKER, group=ATTACKER, extra_groups=[], cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as child:  # fmt: skip
            assert child.stdout
            assert child.stdout.readline() == b"\n"
            malformed = receiver.counts.malformed
            assert send(receiver.path, b"no datagram")  # everything before it has come through, too
            wait_until(lambda: receiver.counts.malformed > malformed)
            used_ns = time.clock_gettime_ns(~child.pid << 3 | 2)  # clock_getcpuclockid(3)
            child.communicate(b"\n", PATIENCE_S)
        taken = receiver.drain()
        ends = taken.start_monotonic_ns + taken.duration_ns
        intervals = list(zip(taken.tid.tolist(), taken.start_monotonic_ns.tolist(), ends.tolist(), strict=True))
        return Claimed(int(taken.thread_cpu_ns.sum()), used_ns, intervals)

    return claimed


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_process_has_no_more_cpu_than_its_own_clock_says(claimed: Callable[[str], Claimed], attack: str) -> None:
    left = claimed(ATTACKS[attack])
    assert left.cpu_ns <= left.used_ns
    if attack in ("threads of other processes", "more than there was time"):
        assert left.cpu_ns == 0
    by_thread: dict[int, int] = {}
    for tid, start, end in sorted(left.intervals, key=lambda interval: interval[2]):
        assert not tid or start >= by_thread.get(tid, 0)
        by_thread[tid] = end


def test_an_honest_process_keeps_all_that_it_says(
    claimed: Callable[[str], Claimed], receiver: ActivityReceiver
) -> None:
    left = claimed("used = time.thread_time_ns() // 2; claim([(start, now - start, used, me)])")
    assert left.cpu_ns > 0.1 * SECOND
    assert len(left.intervals) == 1
    assert (receiver.counts.overlapping, receiver.counts.unproven, receiver.counts.unknown_threads) == (0, 0, 0)


def test_what_was_not_believed_is_counted(claimed: Callable[[str], Claimed], receiver: ActivityReceiver) -> None:
    claimed(ATTACKS["overlapping intervals"])
    assert receiver.counts.overlapping == 999
    claimed(ATTACKS["threads that have ended"])
    assert receiver.counts.unproven >= 998


def _bounded(claims: CpuClaims, *rows: tuple[int, int, int, int], pid: int = os.getpid(), uid: int = 0) -> Bounded:
    """`rows`: thread, start, end, CPU time."""
    tids, starts, ends, cpus = (list(column) for column in zip(*rows, strict=True))
    columns = IntervalColumns([CONTEXT] * len(rows), starts, [0] * len(rows), ends, cpus, tids)
    (made,) = datagrams(b"shop", pid, columns, [], 0)
    threads = HostThreads(np.array(tids, np.uint32), np.zeros(len(rows), bool), 5)
    return claims.bound(pid, uid, threads, decode(made.content, max(ends) + 1))


def _rows(bounded: Bounded) -> list[tuple[int, int, int, int]]:
    left = bounded.datagram
    ends = left.start_monotonic_ns + left.duration_ns
    columns = (left.tid, left.start_monotonic_ns, ends, left.thread_cpu_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_of_nested_intervals_each_has_the_time_that_is_its_own() -> None:
    """As a library sends them that reports a span when it has ended, with all that was within it."""
    inner, later, outer = (1, 120, 150, 30), (1, 160, 170, 10), (1, 100, 200, 100)
    expected = [inner, later, (1, 170, 200, 30)]
    assert _rows(_bounded(CpuClaims(), inner, later, outer)) == expected
    assert _rows(_bounded(CpuClaims(), outer, inner, later)) == [expected[2], *expected[:2]]
    claims = CpuClaims()
    assert [row for rows in (inner, later, outer) for row in _rows(_bounded(claims, rows))] == expected
    begins_with_it = _bounded(CpuClaims(), (1, 100, 200, 100), (1, 150, 200, 50))
    assert _rows(begins_with_it) == [(1, 150, 200, 50)]
    assert begins_with_it.overlapping == 1


def test_intervals_that_meet_and_those_of_other_threads_are_left_alone() -> None:
    claims = CpuClaims()
    first = [(1, 100, 200, 90), (2, 100, 300, 200), (1, 200, 200, 0), (1, 200, 250, 50)]
    assert _rows(_bounded(claims, *first)) == first
    second = [(2, 300, 301, 1), (1, 260, 270, 5), (3, 100, 200, 7)]
    assert _rows(_bounded(claims, *second)) == second
    assert _bounded(claims, (3, 100, 200, 7)).datagram.tid.tolist() == []


def test_processes_that_have_ended_have_no_more_cpu_than_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """All those of a user together, in a while."""
    now = 10**15
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    claims, cpus, pids = CpuClaims(), os.cpu_count() or 1, itertools.count(2**22 + 1)  # the kernel gives no such IDs

    def claimed(uid: int) -> int:
        rows = [(thread, now - SECOND, now, SECOND) for thread in range(1, 11)]
        ended = [_bounded(claims, *rows, pid=next(pids), uid=uid) for _ in range(cpus)]
        return sum(int(bounded.datagram.thread_cpu_ns.sum()) for bounded in ended)

    assert claimed(ATTACKER) == cpus * SECOND
    assert claimed(ATTACKER) == 0
    assert claimed(OTHER) == cpus * SECOND
    now += SECOND // 2
    assert claimed(ATTACKER) == cpus * SECOND // 2


def test_what_a_process_used_before_it_was_heard_is_believed_for_some_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise one that worked for days could put all of it into one trace."""
    monkeypatch.setattr(cpu_claims, "_FIRST_NS", SECOND // 1000)
    cpus = os.cpu_count() or 1
    assert time.process_time_ns() > cpus * SECOND // 1000
    first = _bounded(CpuClaims(), (1, 10**15, 10**15 + 100 * SECOND, 100 * SECOND))
    assert first.datagram.thread_cpu_ns.tolist() == [cpus * SECOND // 1000]


def test_threads_of_a_process_take_a_bounded_room() -> None:
    claims = CpuClaims()
    for thread in range(1, 20_000, 100):
        _bounded(claims, *((thread + i, 1000 * thread, 1000 * thread + 10, 0) for i in range(100)))
    known = claims._processes.get(os.getpid())
    assert known is not None
    assert 2000 < len(known.ends) < 4200
    assert max(known.ends) == 20_000
