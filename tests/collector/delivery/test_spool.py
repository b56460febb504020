"""The spool: in order, bounded, and whole after any death."""

import errno
import io
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.delivery.message_log import MAGIC, Message, MessageLogError, decode, encode
from collector.delivery.spool import Spool, SpoolError, observed
from icestream.topics import DEFAULT_PROFILE_TYPE
from icestream.v1.raw_pb2 import RawBatch
from tests.sinks.small_disk import small_disk

messages = st.lists(
    st.builds(Message, st.text(max_size=20), st.binary(max_size=20), st.binary(max_size=200)), max_size=5
)


def window(number: int, size: int = 100) -> list[Message]:
    return [Message("icestream.raw", b"host", number.to_bytes(4, "big") + bytes(size))]


def content(spool: Spool) -> list[int]:
    """Takes everything out, in order."""
    numbers: list[int] = []
    while (entry := spool.hold(set())) is not None:
        numbers += [int.from_bytes(message.value[:4], "big") for message in spool.read(entry)]
        spool.delete(entry)
    return numbers


@given(messages, st.integers(0, 400))
def test_frames_come_back_as_they_were_and_a_torn_end_is_cut_off(given_messages: list[Message], cut: int) -> None:
    data = b"".join(encode(given_messages))
    assert list(decode(io.BytesIO(data))) == given_messages
    torn = data[: max(len(MAGIC), len(data) - cut)]
    decoded = list(decode(io.BytesIO(torn)))
    assert decoded == given_messages[: len(decoded)]


@given(messages.filter(bool), st.data())
def test_a_damaged_frame_is_never_taken_for_a_good_one(given_messages: list[Message], data: st.DataObject) -> None:
    encoded = bytearray(b"".join(encode(given_messages)))
    at = data.draw(st.integers(len(MAGIC), len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    decoded = list(decode(io.BytesIO(bytes(encoded))))
    assert decoded == given_messages[: len(decoded)]
    assert len(decoded) < len(given_messages)


def test_what_is_no_file_of_frames_is_a_clear_error() -> None:
    with pytest.raises(MessageLogError, match="expected a message log"):
        list(decode(io.BytesIO(b"something else")))


def test_windows_come_out_in_order_also_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    for number in range(5):
        spool.append(window(number))
    first = spool.hold(set())
    assert first is not None
    spool.delete(first)
    spool.close()
    again = Spool(tmp_path, 1 << 20)
    again.append(window(5))
    assert content(again) == [1, 2, 3, 4, 5]
    assert (len(again), again.bytes) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    again.close()


def test_beyond_the_limit_the_oldest_are_dropped_and_counted_but_not_one_that_is_being_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    spool.append(window(0))
    assert spool.hold(set()) is not None
    for number in range(1, 10):
        spool.append(window(number))
    remaining = content(spool)
    assert remaining[0] == 0
    assert remaining[1:] == list(range(10 - len(remaining) + 1, 10))
    assert spool.dropped == 10 - len(remaining) > 0
    spool.close()


def test_the_newest_window_is_kept_although_those_that_are_being_sent_fill_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    for number in range(5):
        spool.append(window(number, 900))
        if number < 2:
            assert spool.hold({entry.number for entry in spool._entries.values() if entry.number in spool._held})
    assert content(spool) == [0, 1, 4]
    assert spool.dropped == 2
    spool.close()


def test_two_collectors_cannot_use_one_directory(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    with pytest.raises(SpoolError, match="another collector"):
        Spool(tmp_path, 1000)
    spool.close()
    Spool(tmp_path, 1000).close()


def test_a_directory_that_cannot_be_made_leaves_windows_in_memory_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Spool(tmp_path / "left", 1 << 20)
    left.append(window(0))
    left.close()
    (tmp_path / "file").write_text("")
    spool = Spool(tmp_path / "file" / "spool", 1 << 20)
    assert "cannot be used" in str(spool.trouble)
    spool.append(window(1))
    assert (len(spool), spool.failed_writes) == (1, 1)
    (tmp_path / "file").unlink()
    (tmp_path / "file").mkdir()
    (tmp_path / "left").rename(tmp_path / "file" / "spool")
    monkeypatch.setattr(time, "monotonic", lambda: float("inf"))
    spool.append(window(2))
    assert spool.trouble is None
    assert content(spool) == [0, 1, 2]
    shutil.rmtree(tmp_path / "file" / "spool")
    spool.append(window(3))  # notices
    assert "was removed" in str(spool.trouble)
    spool.append(window(4))
    assert spool.trouble is None
    assert len(list((tmp_path / "file" / "spool").glob("*.messages"))) == 1
    assert content(spool) == [3, 4]
    spool.close()


def test_what_arrives_and_what_it_says_is_lost_is_everything_that_was_sampled(tmp_path: Path) -> None:
    """Windows that are dropped count, and those that these would have told of; whatever is dropped when."""
    spool = Spool(tmp_path, 3000)
    sampled = reported = 0
    for number in range(200):
        if number % 7 == 0 and (entry := spool.hold(set())) is not None:  # one is delivered
            reported += observed(spool.read(entry))
            spool.delete(entry)
        elif number % 11 == 0 and (entry := spool.hold(set())) is not None:  # one is refused for good
            spool.give_up(entry)
        missing = spool.take_dropped_samples()
        sampled += number
        batch = RawBatch(
            profile_type=DEFAULT_PROFILE_TYPE, dropped_samples=missing, sample_offset_us=range(number), host_id="h" * 99
        )
        spool.append([Message("icestream.raw", b"host", batch.SerializeToString())])
    assert spool.dropped > 50
    missing = spool.take_dropped_samples()
    while (entry := spool.hold(set())) is not None:
        reported += observed(spool.read(entry))
        spool.delete(entry)
    assert reported + missing == sampled
    assert spool.dropped_samples > 0
    spool.close()


def test_files_of_garbage_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{7:016d}.messages").write_bytes(b"garbage")
    (tmp_path / f"{8:016d}.messages").write_bytes(b"")
    (tmp_path / f"{9:016d}.part").write_bytes(MAGIC)
    (tmp_path / "notes.txt").write_text("mine")
    spool = Spool(tmp_path, 1 << 20)
    spool.append(window(3))
    assert content(spool) == [3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "notes.txt"]
    spool.close()


def test_a_file_that_cannot_be_read_now_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(window(1))
    entry = spool.hold(set())
    assert entry is not None

    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", no_descriptor)
        with pytest.raises(OSError, match="Too many"):
            spool.read(entry)
    assert spool.read(entry) == window(1)
    next(tmp_path.glob("*.messages")).unlink()
    assert spool.read(entry) == []
    spool.close()


def test_a_directory_that_is_away_for_a_while_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.delivery.spool._AGAIN_S", 0.0)
    folder = tmp_path / "spool"
    spool = Spool(folder, 1 << 20)
    for number in range(3):
        spool.append(window(number))
    size = spool.bytes
    folder.rename(tmp_path / "away")
    spool.append(window(3))  # waits in memory
    assert spool.trouble is not None
    (tmp_path / "away").rename(folder)
    spool.append(window(4))
    assert (len(spool), spool.trouble) == (5, None)
    assert spool.bytes < 2 * size
    assert content(spool) == [0, 1, 2, 3, 4]
    assert spool.bytes == 0
    spool.close()


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_disk_that_is_full_leaves_the_latest_windows_in_memory(kind: str, tmp_path: Path) -> None:
    with small_disk(kind, tmp_path) as disk:
        spool = Spool(disk.path / "spool", 1 << 20, memory_bytes=500)
        spool.append(window(0))
        disk.fill()
        for number in range(1, 8):
            spool.append(window(number))
        assert "No space left on device" in (spool.trouble or "")
        disk.free()
        spool.append(window(8))
        assert spool.trouble is None
        assert content(spool) == [0, 4, 5, 6, 7, 8]
        assert (spool.failed_writes, spool.dropped) == (7, 3)
        spool.close()


def test_windows_that_were_taken_in_survive_kill_9(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from collector.delivery.message_log import Message
        from collector.delivery.spool import Spool
        spool = Spool(Path(sys.argv[1]), 1 << 30)
        for number in range(10**6):
            spool.append([Message("icestream.raw", b"host", number.to_bytes(4, "big") + bytes(300_000))])
            print(number, flush=True)
    """)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.05)
            writer.send_signal(signal.SIGKILL)
            appended = [0, *(int(line) for line in writer.stdout.read().splitlines() if line)]
        spool = Spool(tmp_path, 1 << 30)
        stored = content(spool)
        spool.close()
        assert stored[: len(appended)] == appended
        assert stored == list(range(len(stored)))
