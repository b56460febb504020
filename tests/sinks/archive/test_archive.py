"""The raw archive: what came is what is read again, in order, once."""

import random
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from icestream.topics import ACTIVITY, RAW
from sinks.archive import archive
from sinks.archive.archive import Archived, ArchiveSink
from sinks.runner.ranges import InFlight, MessageRange

HOUR = 3600 * 10**9
T0 = 1_770_000_000 // 3600 * HOUR


def message(offset: int, start: int, end: int, partition: int = 0, value: bytes = b"v") -> Archived:
    return Archived("C", partition, offset, start // 10**6, b"host", value, "host", 1, offset + 1, 0, 1, start, end)


def write(sink: ArchiveSink, messages: list[Archived], topic: str = RAW, nonce: str = "0" * 12) -> None:
    offsets = InFlight(messages[0].offset, messages[-1].offset, nonce)
    sink.write(MessageRange("C", topic, messages[0].partition, offsets, messages, False))


def test_messages_come_back_as_they_were_by_time_in_order_of_partition_and_offset(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path))
    sent = [
        message(i, T0 + i * HOUR // 4, T0 + (i + 1) * HOUR // 4 - 1, partition, random.Random(i).randbytes(100))
        for partition in (1, 0)
        for i in range(16)
    ]
    for i in range(0, len(sent), 4):
        write(sink, sent[i : i + 4])
    found = list(archive.read(str(tmp_path), RAW, T0 + HOUR, T0 + 2 * HOUR))
    assert found == sorted((m for m in sent if 4 <= m.offset < 8), key=lambda m: (m.partition, m.offset))
    assert archive.covers(str(tmp_path), RAW) == (T0, T0 + 4 * HOUR)
    assert list(archive.read(str(tmp_path), ACTIVITY, T0, T0 + 9 * HOUR)) == []


def test_a_range_written_again_or_overlapping_is_read_once(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path))
    messages = [message(i, T0 + i, T0 + i) for i in range(10)]
    write(sink, messages[:6])
    write(sink, messages[:6], nonce="f" * 12)
    write(sink, messages[3:])
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    assert list(archive.read(str(tmp_path), RAW, T0, T0 + HOUR)) == messages


def test_a_file_that_was_being_written_is_not_read(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path))
    write(sink, [message(0, T0, T0)])
    file = next(tmp_path.rglob("*.parquet"))
    (file.parent / ".C-0-1-1.parquet.7-7.part").write_bytes(file.read_bytes()[:50])
    assert len(list(archive.read(str(tmp_path), RAW, T0, T0 + 1))) == 1


def test_activity_that_ends_after_the_range_is_found_for_it(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path))
    write(sink, [message(0, T0 - HOUR // 2, T0 + HOUR), message(1, T0 + HOUR, T0 + HOUR)], ACTIVITY)
    assert [m.offset for m in archive.read(str(tmp_path), ACTIVITY, T0, T0 + HOUR // 2)] == [0]


def test_a_message_of_many_hours_is_found_for_each_of_them(tmp_path: Path) -> None:
    write(ArchiveSink(str(tmp_path)), [message(0, T0, T0 + 23 * HOUR)])
    for hour in range(24):
        start = T0 + hour * HOUR
        assert [m.offset for m in archive.read(str(tmp_path), RAW, start, start + HOUR)] == [0]


def test_old_days_are_deleted_when_told(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path), keep_days=30)
    write(sink, [message(0, T0, T0)])
    copy = tmp_path / RAW / "a copy of somebody"
    copy.mkdir()
    sink.idle()
    assert copy.exists()
    assert list(archive.read(str(tmp_path), RAW, T0, T0 + 1)) == []
    keeping = ArchiveSink(str(tmp_path))
    write(keeping, [message(0, T0, T0)])
    keeping.idle()
    assert len(list(archive.read(str(tmp_path), RAW, T0, T0 + 1))) == 1


def test_files_are_plain_parquet(tmp_path: Path) -> None:
    write(ArchiveSink(str(tmp_path)), [message(0, T0, T0)])
    table = pq.read_table(next(tmp_path.rglob("*.parquet")), partitioning=None)
    assert table["value"].to_pylist() == [b"v"]


@pytest.mark.slow
def test_an_archive_in_an_object_store_is_written_read_and_cleaned(bucket: str) -> None:
    uri = f"{bucket}/raw"
    sink = ArchiveSink(uri, keep_days=30)
    sink.check()
    messages = [message(i, T0 + i * HOUR, T0 + i * HOUR) for i in range(3)]
    write(sink, messages)
    write(sink, messages)
    assert list(archive.read(uri, RAW, T0, T0 + 3 * HOUR)) == messages
    assert archive.covers(uri, RAW) == (T0, T0 + 3 * HOUR)
    assert archive.covers(uri, ACTIVITY) is None
    recent = message(3, time.time_ns(), time.time_ns())
    write(sink, [recent])
    sink.idle()
    assert list(archive.read(uri, RAW, T0, time.time_ns())) == [recent]


def test_files_outside_of_the_time_range_are_not_opened(tmp_path: Path) -> None:
    sink = ArchiveSink(str(tmp_path))
    write(sink, [message(0, T0, T0)])
    write(sink, [message(1, T0 + HOUR // 2, T0 + HOUR // 2)])
    next(file for file in tmp_path.rglob("*.parquet") if "-0-0-0-" in file.name).write_bytes(b"not Parquet")
    assert [m.offset for m in archive.read(str(tmp_path), RAW, T0 + HOUR // 4, T0 + HOUR)] == [1]
    with pytest.raises(ValueError, match="Parquet"):
        list(archive.read(str(tmp_path), RAW, T0, T0 + HOUR))
