"""What long work says of itself: the share that is done, and the time left."""

import io
import logging
from types import SimpleNamespace

import pytest

from icestream.process import progress
from icestream.process.progress import progress_display


class Clock(SimpleNamespace):
    """Stands for the module `time`: it goes when it is told to."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_a_log_has_a_line_every_ten_seconds_and_at_the_end_with_the_time_left(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    show = progress_display()
    with caplog.at_level(logging.INFO):
        for after_s, part in ((0, 0.5), (9, 0.55), (2, 0.6), (5, 0.7), (1, 1.0)):  # an earlier run had done half
            clock.now += after_s
            show(part, f"{after_s} samples")
    assert caplog.messages == [" 60 %: 2 samples, 44 s left", "100 %: 1 samples, 0 s left"]


def test_a_terminal_has_a_bar_with_the_time_left_once_something_is_done(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    show = progress_display()
    show(0.0, "begins")
    clock.now += 30
    show(0.25, "7 samples/s")
    show(1.0, "done")
    lines = terminal.getvalue().split("\r")
    assert "left" not in lines[1]
    assert lines[2].startswith("[########......................]  25%     90 s left  7 samples/s")
    assert lines[3].startswith(f"[{'#' * 30}] 100%      0 s left  done")
    assert lines[3].endswith("\n")
