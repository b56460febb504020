"""What a window says of the host beside its samples."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collector.activity.intervals import Intervals
from collector.batches.windows import Drained, Windows
from collector.bpf.samples import Samples
from collector.labels.thread_labels import ThreadLabels
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import Mappings
from collector.python.processes import PythonProcesses
from icestream.v1.raw_pb2 import RawBatch

EMPTY = np.empty(0, np.uint64)
NO_ACTIVITY = Intervals(*([EMPTY] * 7))


@pytest.fixture
def windows() -> Windows:
    """Of a host of which no process is known."""
    files = FileCache()
    host: Any = SimpleNamespace(
        mappings=Mappings(files), python=PythonProcesses(files.open, lambda *layout: pytest.fail("no process"))
    )
    return Windows("host-1", host, ThreadLabels("host-1"), configured_period_ns=10_000_000)


def idle(end_monotonic_ns: int, lost: int = 0) -> Drained:
    """5 s in which nothing ran."""
    return Drained(
        Samples(*([EMPTY] * 13), lost=lost), end_monotonic_ns - 5 * 10**9, end_monotonic_ns, period_ns=20_000_000
    )


def test_a_host_on_which_nothing_runs_still_sends_a_batch_a_minute(windows: Windows) -> None:
    now = time.monotonic_ns()
    sent = [windows.messages(idle(now + s * 10**9), NO_ACTIVITY, {}) for s in range(0, 181, 5)]
    assert [5 * i for i, messages in enumerate(sent) if messages] == [60, 120, 180]
    batches = [RawBatch.FromString(message.value) for messages in sent for message in messages]
    assert [batch.id.sequence for batch in batches] == [1, 2, 3]


def test_lost_and_dropped_samples_and_a_lowered_frequency_are_told_apart(windows: Windows) -> None:
    (message,) = windows.messages(idle(time.monotonic_ns(), lost=3), NO_ACTIVITY, {}, missing=4)
    batch = RawBatch.FromString(message.value)
    assert (batch.lost_samples, batch.dropped_samples) == (3, 4)
    assert (batch.period, batch.configured_period) == (20_000_000, 10_000_000)
