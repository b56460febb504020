"""Recordings: written by the real collector, read back as Kafka messages."""

import subprocess
import sys
from pathlib import Path

import pytest

from collector.delivery.message_log import Message
from icestream.topics import RAW, SYMBOLS
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.symbols_pb2 import SymbolFile
from standalone.demo.recording import RecordingError, read_recording, write_recording
from tests.endless import endless
from tests.waiting import PATIENCE_S

ICESTREAM = Path(sys.executable).parent / "icestream"


def test_messages_come_back_in_order_and_a_cut_off_end_is_left_out(tmp_path: Path) -> None:
    messages = [Message(f"topic {i}", bytes([i]), bytes(100 * i)) for i in range(5)]
    path = tmp_path / "recording"
    assert write_recording(path, iter(messages)) == path.stat().st_size
    assert list(read_recording(path)) == messages
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_recording(path)) == messages[:-1]


def test_what_is_no_recording_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "text", tmp_path / "gone", tmp_path):
        with pytest.raises(RecordingError, match="cannot be read as a recording"):
            list(read_recording(path))


@pytest.mark.ebpf
@pytest.mark.soak  # half a minute, for what only `make recording` uses
def test_a_recording_of_this_machine_has_batches_and_the_symbols_of_their_files(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    command = [
        ICESTREAM, "record", path, "--seconds", "3", "--interval", "1", "--frequency", "199",
        "--activity-socket", f"{tmp_path}/activity.sock",
    ]  # fmt: skip
    with endless("while True: sorted(range(1000))"):
        subprocess.run(command, check=True, timeout=300)
    messages = list(read_recording(path))
    batches = [RawBatch.FromString(value) for topic, _, value in messages if topic == RAW]
    assert batches  # how many windows three seconds have depends on what else runs
    assert sum(len(batch.sample_pid) for batch in batches) > 100
    symbols = {SymbolFile.FromString(value).build_id for topic, _, value in messages if topic == SYMBOLS}
    named = {mapping.build_id for batch in batches for mapping in batch.mappings if mapping.build_id}
    assert symbols <= named
    assert any(mapping.file == "[kernel]" and mapping.build_id in symbols for b in batches for mapping in b.mappings)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "99999"])
def test_a_time_that_cannot_be_is_one_line(tmp_path: Path, seconds: str) -> None:
    command = [ICESTREAM, "record", tmp_path / "x", f"--seconds={seconds}"]
    record = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (record.returncode, len(record.stderr.splitlines())) == (1, 1)
