"""Calls a function at the end of children of `multiprocessing`, and of `billiard`, its copy in Celery.

Such a child ends with `os._exit`, which skips `atexit`. It calls the finalizers of its `util` module instead.
"""

import sys
from collections.abc import Callable
from typing import Any

_LAST = -1000
"""Priority of the call: what the application does at its end may still be part of a request."""


class _Known:
    """The `util` modules that call us in each child."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_known = _Known()


def at_end(call: Callable[[], None]) -> None:
    """Has `call` called at the end of this process, if it is such a child, and of its later children.

    To be called again in the child of a fork: only then is it certain that `util` is loaded if it is needed.
    """
    for name in ("multiprocessing.util", "billiard.util"):
        util: Any = sys.modules.get(name)
        if util is None:
            continue

        def add(_: object, util: Any = util) -> None:
            util.Finalize(None, call, exitpriority=_LAST)

        add(None)
        if name not in _known.names:
            _known.names.add(name)
            util.register_after_fork(_known, add)  # a child forgets its parent's finalizers, and then calls this
