"""Finds the messages that a store refuses for what they hold.

Nothing that is stored depends on the answer but which messages of a range are left out of its next attempts; the range
keeps its name, under which each table takes the rows of a range once. So nothing is counted twice, whenever a process
is killed, and whichever attempt has stored rows: its rows are those of the good messages in any case.
"""

from collections.abc import Sequence
from typing import Any

from sinks.sink import Sink
from sinks.try_out import NotToBlame


class RefusedByStore(Exception):
    """A store refuses a message that could be decoded."""


def refused(sink: Sink, messages: Sequence[Any]) -> dict[int, RefusedByStore]:
    """Returns the indices of the messages that the store refuses alone, and why. Stores nothing.

    Raises what the store raises where not the messages are to blame: it is away, or it refuses no rows, too.
    """
    found: dict[int, RefusedByStore] = {}
    _search(sink, messages, 0, found)
    return found


def _search(sink: Sink, messages: Sequence[Any], first: int, found: dict[int, RefusedByStore]) -> None:
    """Adds the refused ones to `found`. `first`: index of the first message."""
    error = _error(sink, messages)
    if error is None:
        return
    if len(messages) > 1:
        half = len(messages) // 2
        _search(sink, messages[:half], first, found)
        _search(sink, messages[half:], first + half, found)
    elif _error(sink, messages) is not None:  # a second time, and the store was there before and after it
        found[first] = RefusedByStore(str(error) or type(error).__name__)


def _error(sink: Sink, messages: Sequence[Any]) -> BaseException | None:
    """Returns why the store refuses messages together. Raises what it raises if it is away.

    If it refuses a single message, and no rows of it, too, this raises that.
    """
    try:
        sink.try_out(messages, empty=False)
    except (MemoryError, NotToBlame):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        sink.failed()
        sink.check()
        if len(messages) == 1:
            sink.try_out(messages, empty=True)
        return error
    return None
