"""Ends what takes much more CPU time than it should, such as quadratic time, whatever else the machine does."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread once the process has taken that much CPU time."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes more than {seconds} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
