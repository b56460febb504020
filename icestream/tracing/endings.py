"""Calls a function at ends of a process that skip `atexit`.

- Children of `multiprocessing`, and of `billiard`, its copy in Celery, end with `os._exit`. Their `util` modules call
  finalizers before.
- uvicorn ends itself by the signal that asked it to end, with `signal.raise_signal`.
"""

import functools
import signal
import sys
from collections.abc import Callable
from typing import Any

_LAST = -1000
"""Priority of the finalizer: what the application does at its end may still be part of a request."""
_FATAL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class _Known:
    """What calls us already, in this process and its children."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_known = _Known()


def at_end(call: Callable[[], None]) -> None:
    """Has `call` called at such an end of this process and of its children.

    To be called again in the child of a fork: only then is it certain that `util` is loaded if it is needed.
    """
    for name in ("multiprocessing.util", "billiard.util"):
        if util := sys.modules.get(name):
            _before_exit(util, name, call)
    if "signal" not in _known.names:
        _known.names.add("signal")
        _before_signal(call)


def _before_exit(util: Any, name: str, call: Callable[[], None]) -> None:
    def add(_: object) -> None:
        util.Finalize(None, call, exitpriority=_LAST)

    add(None)
    if name not in _known.names:
        _known.names.add(name)
        util.register_after_fork(_known, add)  # a child forgets its parent's finalizers, and then calls this


def _before_signal(call: Callable[[], None]) -> None:
    original = signal.raise_signal

    @functools.wraps(original)
    def raise_signal(signalnum: int, /) -> None:
        if signalnum in _FATAL and signal.getsignal(signalnum) is signal.SIG_DFL:
            call()
        original(signalnum)

    signal.raise_signal = raise_signal
