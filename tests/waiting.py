"""Waiting for what a test expects to happen: it happens at once on an idle machine, and late on a busy one."""

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""How long a test waits for what must happen. Only a fault takes that long, even beside programs that use every CPU."""


def wait_until(
    condition: Callable[[], object], why: Callable[[], object] = lambda: "", seconds: float = PATIENCE_S
) -> None:
    """Returns once the condition is true. Raises AssertionError with `why()` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {seconds:.0f} s: {why()}"
        time.sleep(0.005)
