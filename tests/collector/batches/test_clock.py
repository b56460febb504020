"""The system's clock is set while the collector runs: batches stay sane."""

import threading
import time
from pathlib import Path

import pytest

from collector import metrics
from collector.agent import load, make_profiler
from collector.batches import clock
from collector.batches.clock import STEP_NS, Clock
from collector.delivery.window_buffer import MemoryBuffer
from collector.processes.mapped_files import FileCache
from collector.settings import CollectorSettings
from icestream.columns.packed import column
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.raw_pb2 import RawBatch

HOUR_NS = 3600 * 10**9


def test_small_differences_are_left_alone_and_steps_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 1_000_000 * HOUR_NS
    monkeypatch.setattr(clock, "measure", lambda: offset)
    followed = Clock()
    for step in (STEP_NS // 2, -STEP_NS // 2):
        monkeypatch.setattr(clock, "measure", lambda step=step: offset + step)
        assert followed.update() == offset
    for count, step in enumerate((3 * HOUR_NS, -7 * HOUR_NS, -300_000 * HOUR_NS, 0), 1):
        monkeypatch.setattr(clock, "measure", lambda step=step: offset + step)
        assert followed.update() == offset + step
        assert followed.steps == count


@pytest.mark.ebpf
def test_batches_are_whole_and_as_long_as_they_took_however_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, step_ns = clock.measure, 0
    monkeypatch.setattr(clock, "measure", lambda: real() + step_ns)
    settings = CollectorSettings(
        spool=tmp_path / "spool", activity_socket=tmp_path / "activity.sock", interval=0.3, settle=0, frequency=199
    )
    before = metrics.CLOCK_STEPS._value.get()
    buffer = MemoryBuffer()
    messages = buffer.messages
    stop = threading.Event()
    started_monotonic_ns = time.monotonic_ns()
    profiler = make_profiler(settings, load(settings), FileCache(), buffer)
    running = threading.Thread(target=profiler.run, args=(stop,))
    running.start()
    for step_ns in (0, 5 * HOUR_NS, -9 * HOUR_NS, 400_000 * HOUR_NS, 0):  # noqa: B007 (the lambda reads it)
        had = len(messages)
        while len(messages) < had + 3:
            time.sleep(0.02)
    stop.set()
    running.join()
    assert metrics.CLOCK_STEPS._value.get() - before == 4
    batches = [RawBatch.FromString(message.value) for message in messages if message.topic == RAW]
    batches = [batch for batch in batches if batch.profile_type == DEFAULT_PROFILE_TYPE]
    assert [batch.id.sequence for batch in batches] == list(range(1, len(batches) + 1))
    assert len({batch.id.started_unix_nano for batch in batches}) == 1
    starts = [batch.start_unix_nano - batch.clock_offset_ns for batch in batches]
    assert starts == sorted(starts)
    assert started_monotonic_ns <= starts[0]
    assert starts[-1] <= time.monotonic_ns()
    hours = []
    for batch in batches:
        took_ns = batch.end_unix_nano - batch.start_unix_nano
        assert 0 < took_ns < 60 * 10**9
        times = column(batch, "sample_offset_us")
        assert len(times) == 0 or 0 <= times.max() * 1000 < took_ns
        assert batch.activity_complete_unix_nano == batch.end_unix_nano
        hours.append(round((batch.start_unix_nano - time.time_ns()) / HOUR_NS))
    assert list(dict.fromkeys(hours)) == [0, 5, -9, 400_000]
