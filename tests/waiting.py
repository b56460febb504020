"""Waiting for what a test expects to happen: it happens at once on an idle machine, and late on a busy one."""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable

_BUSY = bool({"CI", "PYTEST_XDIST_WORKER"} & set(os.environ)) or os.getloadavg()[0] > (os.cpu_count() or 1)
PATIENCE_S = 300.0 if _BUSY else 60.0
"""How long a test waits for what must happen. Only a fault takes that long, also beside other tests and
programs that use every CPU."""


def wait_until(
    condition: Callable[[], object], why: Callable[[], object] = lambda: "", seconds: float = PATIENCE_S
) -> None:
    """Returns once the condition is true. Raises AssertionError with `why()` after `seconds`."""
    deadline = time.monotonic() + seconds
    while (begun := time.monotonic()) < deadline:
        if condition():
            return
        time.sleep(pause_s(begun, 0.005))
    raise AssertionError(f"did not happen within {seconds:.0f} s: {why()}")


def pause_s(begun: float, least_s: float) -> float:
    """Returns how long to wait before a condition that was asked at `begun` (time.monotonic) is asked again: four
    times as long as the answer took, so that asking does not hold up what is waited for, and other tests."""
    return max(least_s, 4 * (time.monotonic() - begun))


def readable(sockets: Iterable[socket.socket]) -> list[socket.socket]:
    """Returns those that have something to read, or are closed, now. select() takes no descriptors above 1,023."""
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ, each)
        return [key.data for key, _ in selector.select(0)]
