"""What the collector takes from applications, and what it does not believe."""

import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collector.activity import activity_socket
from collector.activity.activity_datagram import MalformedDatagram, decode
from collector.activity.activity_socket import ActivityReceiver
from collector.activity.intervals import ActivityIntervals
from collector.processes.process_events import Executed, Exited, Forked
from icestream.tracing.datagram import IntervalColumns, datagrams
from icestream.tracing.threads import Context
from tests.examples import examples
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CONTEXT = bytes(range(1, 25)) + b"\x01\x01\x00\x00"
NOTHING = IntervalColumns([], [], [], [], [], [])
NOW = 10**13


def _datagram(
    rows: list[tuple[bytes, int, int, int]] | None = None,
    service: bytes = b"shop",
    pid: int = 0,
    spans: list[tuple[bytes, bytes, bytes, str, int, int]] | None = None,
    dropped: int = 0,
    tid: int | None = None,
) -> bytes:
    """Rows: context, start, duration, CPU."""
    rows = rows or []
    tid = os.getpid() if tid is None else tid
    contexts = {row[0]: Context(row[0]) for row in rows}
    columns = IntervalColumns(
        [contexts[row[0]] for row in rows],
        [row[1] for row in rows],
        [0] * len(rows),
        [row[1] + row[2] for row in rows],
        [row[3] for row in rows],
        [tid] * len(rows),
    )
    ends = [(trace + own, parent, name, start, end, 0) for trace, own, parent, name, start, end in spans or []]
    (only,) = datagrams(service, pid or os.getpid(), columns, ends, dropped)
    return only.content


def _row(cpu: int = 500, context: bytes = CONTEXT) -> tuple[bytes, int, int, int]:
    return context, time.monotonic_ns() - 10_000, 1000, cpu


def _send(receiver: ActivityReceiver, *contents: bytes) -> None:
    """Sends and waits until all were received."""
    counts = receiver.counts
    before = counts.datagrams + counts.malformed
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(receiver.path))
        for content in contents:
            sender.send(content)
    wait_until(lambda: counts.datagrams + counts.malformed >= before + len(contents))


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ActivityReceiver]:
    receiver = ActivityReceiver(tmp_path / "run" / "activity.sock")
    yield receiver
    receiver.close()


def test_intervals_arrive_as_they_were_sent(receiver: ActivityReceiver) -> None:
    start = time.monotonic_ns() - 10**9
    other = b"\xff" * 24 + CONTEXT[24:]
    _send(
        receiver,
        _datagram([(CONTEXT, start, 100, 90), (other, start + 100, 200, 110)], dropped=3),
        _datagram([(CONTEXT, start + 300, 50, 40)], service=b"cart", dropped=4),
    )
    taken = receiver.drain()
    assert taken.start_monotonic_ns.tolist() == [start, start + 100, start + 300]
    assert taken.duration_ns.tolist() == [100, 200, 50]
    assert taken.thread_cpu_ns.tolist() == [90, 110, 40]
    assert taken.pid.tolist() == taken.tid.tolist() == [os.getpid()] * 3
    traces = [taken.trace_ids[16 * c : 16 * c + 16] for c in taken.context.tolist()]
    spans = [taken.span_ids[8 * c : 8 * c + 8] for c in taken.context.tolist()]
    assert traces == [CONTEXT[:16], other[:16], CONTEXT[:16]]
    assert spans == [CONTEXT[16:24], other[:8], CONTEXT[16:24]]
    assert len(taken.trace_ids) == 32  # each context once
    assert [taken.strings[s] for s in taken.service.tolist()] == ["shop", "shop", "cart"]
    assert taken.strings[0] == ""
    assert taken.dropped == 7
    for column, dtype in (
        ("start_monotonic_ns", np.uint64),
        ("thread_cpu_ns", np.uint64),
        ("context", np.uint32),
        ("tid", np.uint32),
    ):
        assert getattr(taken, column).dtype == dtype
    _is_empty(receiver.drain())


def _is_empty(taken: ActivityIntervals) -> None:
    assert len(taken.start_monotonic_ns) == len(taken.context) == len(taken.spans) == taken.dropped == 0
    assert taken.trace_ids == b""


def test_spans_arrive_with_their_names_and_parents(receiver: ActivityReceiver) -> None:
    start = time.monotonic_ns() - 10**6
    trace, span, parent = CONTEXT[:16], CONTEXT[16:24], b"\x07" * 8
    _send(
        receiver,
        _datagram(spans=[(trace, span, parent, "GET /ü", start, start + 5), (trace, parent, b"", "", start, start)]),
    )
    child, root = receiver.drain().spans
    assert (child.trace_id, child.span_id, child.parent_span_id) == (trace, span, parent)
    assert (child.name, child.service) == ("GET /ü", "shop")
    assert (child.start_unix_nano, child.end_unix_nano) == (start, start + 5)
    assert (root.parent_span_id, root.name) == (b"", "")


def test_processes_and_their_services_are_known_also_without_activity(
    receiver: ActivityReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _send(receiver, _datagram())
    assert receiver.services() == {os.getpid(): "shop"}
    assert set(receiver.services()) == {os.getpid()}
    monkeypatch.setattr(activity_socket, "SERVICE_SECONDS", 0.01)
    time.sleep(0.05)
    assert receiver.services() == {}


@pytest.mark.parametrize("event", [Executed, Forked])
def test_another_program_and_another_process_with_the_same_id_do_not_inherit_a_service(
    receiver: ActivityReceiver, event: type[Executed | Forked]
) -> None:
    about: Any = "sh" if event is Executed else 1
    before = time.monotonic_ns()
    _send(receiver, _datagram())
    assert receiver.services() == {os.getpid(): "shop"}
    receiver.event(os.getpid(), event(before, about))  # it is told late, and sent this as the program that it is now
    receiver.event(os.getpid(), Exited(time.monotonic_ns()))
    assert receiver.services() == {os.getpid(): "shop"}
    receiver.event(os.getpid(), event(time.monotonic_ns(), about))
    assert receiver.services() == {}
    _send(receiver, _datagram())
    assert receiver.services() == {os.getpid(): "shop"}


def test_who_sent_it_is_what_the_kernel_says(receiver: ActivityReceiver) -> None:
    _send(receiver, _datagram([_row()], pid=1, tid=os.getpid()))
    assert receiver.drain().pid.tolist() == [os.getpid()]
    assert receiver.services() == {os.getpid(): "shop"}


def test_a_thread_that_another_process_names_as_its_own_is_not_found_there(receiver: ActivityReceiver) -> None:
    _send(receiver, _datagram([_row()], pid=1, tid=1), _datagram([_row()], tid=1))
    assert receiver.drain().tid.tolist() == [0, 0]
    assert receiver.counts.unknown_threads == 2


def test_a_thread_that_ended_before_its_activity_came_is_taken(receiver: ActivityReceiver) -> None:
    thread = threading.Thread(target=lambda: ended.append(threading.get_native_id()))
    ended: list[int] = []
    thread.start()
    thread.join()
    _send(receiver, _datagram([_row()], tid=ended[0]))
    assert receiver.drain().tid.tolist() == ended


def test_threads_of_a_container_have_the_hosts_ids(receiver: ActivityReceiver) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a PID namespace needs root")
    code = f"""
import os, threading, time
from icestream import tracing
tracing.start(service="contained", socket={str(receiver.path)!r})
def work():
    begun.wait()  # so that the collector sees both when it looks first
    before = time.thread_time_ns()
    with tracing.span("{CONTEXT[:16].hex()}"):
        end = time.thread_time() + 0.4
        while time.thread_time() < end: pass
    spent.append(time.thread_time_ns() - before)
    worked.wait()
    ended.wait()
begun, worked, ended, spent = threading.Barrier(2), threading.Barrier(3), threading.Event(), []
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
worked.wait()
tracing.stop()
print(os.getpid(), sum(spent), flush=True)
input()
ended.set()
"""
    child = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout
    inner_pid, spent = map(int, child.stdout.readline().split())
    _send(receiver, b"no datagram")
    wait_until(lambda: receiver.counts.malformed)  # the socket is a queue: everything before it was received
    (pid,) = receiver.services()
    threads = {int(tid) for tid in os.listdir(f"/proc/{pid}/task")}
    child.communicate("\n")
    taken = receiver.drain()
    assert inner_pid == 1
    assert set(taken.tid.tolist()) < threads
    assert len(set(taken.tid.tolist())) == 2
    assert 0.8e9 <= int(taken.thread_cpu_ns.sum()) <= spent


@pytest.mark.parametrize(
    "row",
    [
        (bytes(24) + CONTEXT[24:], NOW - 1000, 1000, 0),
        (CONTEXT, NOW + 10**9, 0, 0),
        (CONTEXT, NOW - 1000, 10**10, 0),
        (CONTEXT, NOW - 4000 * 10**9, 1000, 0),
        (CONTEXT, NOW - 1000, 1000, 5 * 10**6),
        (CONTEXT, 2**63 - 1, -1000, 0),
        (CONTEXT, NOW, -1, 0),
        (CONTEXT, NOW - 1000, 1000, -1),
    ],
    ids=["zeros", "ahead", "end ahead", "long ago", "too much CPU", "far ahead", "negative", "negative CPU"],
)
def test_a_row_that_cannot_be_true_is_refused_and_the_others_are_taken(row: tuple[bytes, int, int, int]) -> None:
    good = (CONTEXT, NOW - 1000, 1000, 900)
    decoded = decode(_datagram([good, row, good]), NOW)
    assert decoded.thread_cpu_ns.tolist() == [900, 900]
    assert decoded.refused == 1


@pytest.mark.parametrize(
    "span",
    [
        (bytes(16), b"\x01" * 8, b"", "x", NOW - 10, NOW - 5),
        (b"\x01" * 16, bytes(8), b"", "x", NOW - 10, NOW - 5),
        (b"\x01" * 16, b"\x01" * 8, b"", "x", NOW - 5, NOW - 10),
        (b"\x01" * 16, b"\x01" * 8, b"", "x", NOW - 5, NOW + 10**10),
    ],
    ids=["no trace", "no span", "ends before", "ends ahead"],
)
def test_a_span_that_cannot_be_true_is_refused(span: tuple[bytes, bytes, bytes, str, int, int]) -> None:
    decoded = decode(_datagram(spans=[span]), NOW)
    assert decoded.span_names == []
    assert decoded.refused == 1


GOOD = _datagram(
    [(CONTEXT, NOW - 1000, 1000, 900)] * 3, spans=[(CONTEXT[:16], CONTEXT[16:24], b"", "name", NOW - 9, NOW - 1)]
)


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_a_truncated_datagram_is_malformed(size: int) -> None:
    with pytest.raises(MalformedDatagram):
        decode(GOOD[:size], NOW)


def test_a_longer_datagram_an_unknown_version_and_rows_out_of_range_are_malformed() -> None:
    with pytest.raises(MalformedDatagram):
        decode(GOOD + b"\0", NOW)
    with pytest.raises(MalformedDatagram, match="version 3"):
        decode(GOOD[:4] + b"\x03\x00" + GOOD[6:], NOW)
    context_at = 48 + 3 * 24 + 16 + 12
    with pytest.raises(MalformedDatagram, match="row number"):
        decode(GOOD[:context_at] + struct.pack("<I", 1) + GOOD[context_at + 4 :], NOW)


@settings(max_examples=examples(3))
@given(
    garbage=st.binary(max_size=300),
    where=st.integers(0, len(GOOD)),
    header=st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=8),
    keep_header=st.booleans(),
)
@example(garbage=b"", where=8, header=[0] * 8, keep_header=False)
def test_garbage_is_refused_or_read_but_nothing_else_happens(
    garbage: bytes, where: int, header: list[int], keep_header: bool
) -> None:
    content = GOOD[:where] + garbage + GOOD[where + len(garbage) :]
    if not keep_header:
        content = content[:8] + struct.pack("<8I", *header) + content[40:]
    for attempt in (content, garbage):
        try:
            decoded = decode(attempt, NOW)
        except MalformedDatagram:
            continue
        assert (decoded.duration_ns <= 3601 * 10**9).all()


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(contents=st.lists(st.binary(max_size=200), max_size=5))
def test_garbage_among_good_ones_stops_nothing(receiver: ActivityReceiver, contents: list[bytes]) -> None:
    malformed = receiver.counts.malformed
    _send(receiver, *contents, _datagram([_row(cpu=7)]))
    assert receiver.drain().thread_cpu_ns.tolist() == [7]
    assert receiver.counts.malformed == malformed + len(contents)


def test_a_datagram_larger_than_any_is_malformed(receiver: ActivityReceiver) -> None:
    _send(receiver, b"ICEA" + bytes(150_000), _datagram([_row(cpu=8)]))
    assert receiver.drain().thread_cpu_ns.tolist() == [8]
    assert receiver.counts.malformed == 1


def test_what_there_is_no_room_for_is_counted(tmp_path: Path) -> None:
    receiver = ActivityReceiver(tmp_path / "activity.sock", room=20_000)
    began = time.monotonic_ns() - 10**6
    rows = [(CONTEXT, began + 1000 * number, 1000, 500) for number in range(500)]
    for first in range(0, 500, 50):
        _send(receiver, *[_datagram(rows[at : at + 10]) for at in range(first, first + 50, 10)])
    taken = receiver.drain()
    assert 0 < len(taken.start_monotonic_ns) < 500
    assert len(taken.start_monotonic_ns) + taken.dropped == 500
    assert receiver.counts.overflowed == taken.dropped
    _send(receiver, _datagram([_row()]))
    assert len(receiver.drain().start_monotonic_ns) == 1
    receiver.close()


def test_names_are_text_whatever_bytes_they_were(receiver: ActivityReceiver) -> None:
    _send(receiver, _datagram([_row()], service=b"\xff\xfesh\x00op\n\xc3"))
    assert receiver.drain().strings == ["", "sh?op?"]


def test_everybody_may_send_and_the_file_goes_with_the_receiver(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "activity.sock"
    receiver = ActivityReceiver(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    receiver.close()
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    path = tmp_path / "activity.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))
    receiver = ActivityReceiver(path)
    _send(receiver, _datagram([_row()]))
    with pytest.raises(FileExistsError, match="another collector"):
        ActivityReceiver(path)
    receiver.close()
    path.write_text("a user's file")
    with pytest.raises(FileExistsError, match="no socket"):
        ActivityReceiver(path)
    assert path.read_text() == "a user's file"
