"""Finds the messages that a store refuses for what they hold.

The answer decides only which messages of a range are left out of its next attempts. The range keeps its name, and each
table takes the rows of a range once under its name. So nothing is counted twice, whenever a process is killed and
whichever attempt has stored rows: these are the rows of the good messages in any case.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sinks.runner.try_out import NotToBlame
from sinks.sink import Sink

_MAX_REFUSED_OF_RANGE = 3
"""The most messages of a range that may be left out, or a tenth if that is more."""
MAX_REFUSED_PER_HOUR = 60
"""Messages that a store may refuse."""
_SEARCH_S = 60.0


class RefusedByStore(Exception):
    """A store refuses a message that could be decoded."""


def refused(sink: Sink, messages: Sequence[Any]) -> dict[int, RefusedByStore]:
    """Returns the indices of the messages that the store refuses alone, and why. Stores nothing.

    Raises the store's error where the messages are not to blame: the store is away, or it refuses an empty table as
    well. Raises NotToBlame if the store refuses many messages, because then its tables are at fault, and if the search
    takes long, because no partition of the sink moves on meanwhile.
    """
    search = _Search(sink, max(_MAX_REFUSED_OF_RANGE, len(messages) // 10), time.monotonic() + _SEARCH_S)
    _search(search, messages, 0)
    return search.found


@dataclass
class _Search:
    sink: Sink
    most: int
    until: float
    found: dict[int, RefusedByStore] = field(default_factory=dict)


def _search(search: _Search, messages: Sequence[Any], first: int) -> None:
    """Adds the refused ones to what is found. `first`: index of the first message."""
    if time.monotonic() > search.until:
        raise NotToBlame(f"the search took longer than {_SEARCH_S:.0f} s")
    error = _error(search.sink, messages)
    if error is None:
        return
    if len(messages) > 1:
        half = len(messages) // 2
        _search(search, messages[:half], first)
        _search(search, messages[half:], first + half)
    elif _error(search.sink, messages) is not None:  # a second time, and the store was there before and after it
        search.found[first] = RefusedByStore(str(error) or type(error).__name__)
        if len(search.found) > search.most:
            raise NotToBlame(f"the store refuses more than {search.most} of the messages: {error}")


def _error(sink: Sink, messages: Sequence[Any]) -> BaseException | None:
    """Returns why the store refuses messages together. Raises what it raises if it is away.

    Raises also if it refuses a single message, and an empty table in place of its rows as well.
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
