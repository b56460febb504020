"""A thread that waits for one thing for too long is named."""

import threading

import pytest

from collector import metrics
from collector.batches.builder import BatchBuilder, BuildQueue
from collector.guest import stalls
from tests.waiting import PATIENCE_S, wait_until


class SlowWindows:
    """In place of Windows: looking at a process takes until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def look(self, pid: int) -> None:
        assert self.let_go.wait(PATIENCE_S)


def test_a_thread_that_waits_is_named_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    work, windows = BuildQueue(), SlowWindows()
    builder = BatchBuilder(work, windows, None, None)  # type: ignore[arg-type]
    builder.start()
    work.sampled(1)
    assert stalls.why() is None
    monkeypatch.setattr(stalls, "STALLED_S", 0.0)
    wait_until(lambda: stalls.stalled() == ["look"])
    assert "in look" in str(stalls.why())
    assert next(iter(metrics.STALLED_THREADS.collect())).samples[0].value == 1
    windows.let_go.set()
    wait_until(lambda: stalls.why() is None)
    work.end()
    builder.join()
