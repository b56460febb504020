"""How often the work beside the messages is done."""

import threading

import pytest

from icestream.clickhouse.client import Clients
from sinks.runner import periodic as module
from sinks.runner.periodic import repeat


class _Stop(threading.Event):
    """Notes how long it is waited for, and does not wait; it is set after so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._times = times

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return len(self.pauses) > self._times


def test_a_step_that_left_more_to_do_or_failed_is_followed_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each step without work would take as much CPU, three times a minute."""
    lasts = iter([0.0, 30.0, 0.0, -1.0, 0.0])
    now_s = 0.0

    def step(stop: threading.Event) -> None:
        nonlocal now_s
        if (took := next(lasts)) < 0:
            raise RuntimeError("failed")
        now_s += took

    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    stop = _Stop(5)
    repeat("work", step, Clients("chdb://"), stop)
    assert stop.pauses == [20.0, 60.0, 20.0, 60.0, 20.0, 60.0]
