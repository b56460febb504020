"""The kernel's records, and what waits to be decoded."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from collector.processes import pending_records, process_events
from collector.processes.pending_records import PendingRecords
from collector.processes.process_events import Executed, Exited, Forked, Mapped, decode, parse
from tests.collector.processes import kernel_records as kernel


def test_records_of_several_cpus_come_in_the_order_of_their_times_and_what_threads_do_is_left_out() -> None:
    one = kernel.fork(1, 10, 11) + kernel.mapped(5, 11, 0x1000, 0x2000, 0x3000, "/bin/a", b"\xab\xcd")
    two = (
        kernel.execute(3, 11, "a")
        + kernel.fork(4, 11, 11, 12)
        + kernel.named(4, 11, "x")
        + kernel.exit_record(6, 11, 12)
    )
    three = kernel.mapped(7, 11, 0x8000, 0x1000, 0, "//anon") + kernel.exit_record(8, 11)
    read = parse([three, two, one])
    assert [decode(record) for record in read.records] == [
        Forked(1, 10),
        Executed(3, "a"),
        Mapped(5, 0x1000, 0x3000, 0x3000, b"\xab\xcd", 0, 0, 0, "/bin/a"),
        Mapped(7, 0x8000, 0x9000, 0, b"", 0, 0, 0, "//anon"),
        Exited(8),
    ]
    assert (read.lost, read.lost_monotonic_ns) == (0, 0)


def test_lost_records_are_counted() -> None:
    read = parse([kernel.lost(5, 3), kernel.lost(4, 2)])
    assert (read.records, read.lost, read.lost_monotonic_ns) == ([], 5, 5)


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_bytes_that_are_no_records_do_no_harm(parts: list[bytes]) -> None:
    for record in parse(parts).records:
        decode(record)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=120))
def test_records_of_any_content_do_no_harm(kind: int, misc: int, body: bytes) -> None:
    for some in (kind, kind % 16):
        data = struct.pack("<IHH", some, misc, 8 + len(body)) + body
        for record in parse([data, kernel.exit_record(1, 5)]).records:
            decode(record)


def test_events_of_a_process_are_taken_once_and_up_to_a_time() -> None:
    waiting = PendingRecords()
    records = [kernel.fork(1, 10, 11), kernel.fork(2, 10, 12), kernel.execute(3, 11, "a"), kernel.exit_record(9, 11)]
    assert waiting.add(parse(records).records) == [11, 12]
    assert waiting.pop(11, 9) == [Forked(1, 10), Executed(3, "a")]
    assert waiting.pop(11) == [Exited(9)]
    assert waiting.pop(11) == []
    assert 12 in waiting
    assert 11 not in waiting


def test_the_oldest_records_go_first_and_their_processes_are_named() -> None:
    waiting = PendingRecords()
    waiting.add(parse([kernel.fork(1, 10, 11), kernel.fork(2, 10, 12)]).records)
    waiting.pop(12)
    waiting.add(parse([kernel.exit_record(3, 11)]).records)
    assert list(waiting.drop(until_monotonic_ns=3)) == [11]
    assert waiting.pop(11) == [Exited(3)]
    assert list(waiting.drop()) == []
    assert len(waiting) == 0


def test_what_waits_is_bounded() -> None:
    waiting = PendingRecords()
    dropped = 0
    for monotonic_ns in range(pending_records.MAX_RECORDS // 100 + 5):
        waiting.add(parse([kernel.fork(monotonic_ns, 1, 100 + monotonic_ns)] * 100).records)
        dropped += sum(1 for _ in waiting.drop())
    assert dropped == 500
    assert len(waiting) == pending_records.MAX_RECORDS


def test_a_record_that_is_too_short_ends_its_part() -> None:
    assert parse([kernel.fork(1, 2, 3) + struct.pack("<IHH", 7, 0, 0) + kernel.exit_record(2, 3)]).records[1:] == []
    assert process_events.parse([b""]).records == []
