"""The queue of windows that are to be made into batches is bounded."""

import threading

import numpy as np
import pytest

from collector.batches import builder
from collector.batches.builder import BuildQueue
from collector.batches.windows import DrainedWindow
from tests.collector.labels.test_thread_series import samples


def window(threads: int) -> DrainedWindow:
    return DrainedWindow(samples(*range(1, threads + 1)), 0, 1, 10**7)


def test_windows_wait_up_to_so_many_bytes_and_there_is_room_when_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = window(1000).samples.nbytes
    assert size >= 1000 * (8 + 4 * 4)
    monkeypatch.setattr(builder, "_MAX_BYTES", 3 * size)
    work = BuildQueue()
    for _ in range(3):
        assert work.room() > 0
        work.put(window(1000))
    assert work.room() == 0
    work.sampled(17)  # a process takes no bytes
    assert isinstance(work.get(), DrainedWindow)
    assert work.room() > 0
    work.put(window(5000))  # one that is larger than what is left is taken
    assert work.room() == 0


def test_windows_count_with_their_waits() -> None:
    whole = samples(1, 2, 3)
    assert whole.nbytes == sum(v.nbytes for v in vars(whole).values() if isinstance(v, np.ndarray))


def test_windows_wait_up_to_so_many() -> None:
    work = BuildQueue()
    while work.room() > 0:
        work.put(window(1))
    assert len(work) == builder._MAX_ITEMS
    threading.Thread(target=work.get, daemon=True).start()
    work.put(window(1))
