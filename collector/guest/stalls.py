"""Threads that work on one thing for too long: they wait for something that does not answer."""

import time
from types import TracebackType

from collector import metrics

STALLED_S = 10.0
_since: dict[str, float] = {}  # by thread, when it began, by time.monotonic


class Working:
    """A thread, while it works on one thing: `with Working("build")`. Each name is of one thread."""

    def __init__(self, thread: str) -> None:
        self._thread = thread

    def __enter__(self) -> None:
        _since[self._thread] = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _since.pop(self._thread, None)


def stalled() -> list[str]:
    """The threads that have worked on one thing for more than STALLED_S."""
    before = time.monotonic() - STALLED_S
    return sorted(thread for thread, since in _since.copy().items() if since < before)


def why() -> str | None:
    """In words; None while all threads get on."""
    if threads := stalled():
        return f"no progress for {STALLED_S:.0f} s in {', '.join(threads)}: something on this host does not answer"
    return None


metrics.STALLED_THREADS.set_function(lambda: len(stalled()))
