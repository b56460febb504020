"""Columns of n messages of one type, which are decoded and checked at once: one message after the other.

`counts`, int64 (n,), says how many rows each message has. A caller that gets a BadMessage for several messages
decodes them one by one. So checks of all may be stricter than checks of one.
"""

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import Message

from icestream.columns import index_ranges, packed
from icestream.messages import checks
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import Times


def column(messages: Sequence[Message], name: str, counts: np.ndarray, default: int | None = None) -> np.ndarray:
    """Returns a column with these counts. Where a message may lack the column, it is filled with its default."""
    if len(messages) == 1:
        return checks.column(messages[0], name, int(counts[0]), default)
    values, got = packed.columns(messages, name)
    if np.array_equal(got, counts):
        return values
    if default is None or not ((got == counts) | (got == 0)).all():
        wrong = int(np.flatnonzero(got != counts)[0])
        raise BadMessage(name, f"expected {counts[wrong]} entries, as the columns beside it have, got {got[wrong]}")
    rows = int(counts.sum())
    filled = np.full(rows, default, values.dtype) if default else np.zeros(rows, values.dtype)
    if len(values):
        filled[np.repeat(got > 0, counts)] = values
    return filled


def columns(messages: Sequence[Message], *names: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the counts of parallel columns, and the columns."""
    first, counts = packed.columns(messages, names[0])
    return counts, [first, *(column(messages, name, counts) for name in names[1:])]


def of_rows(values: Sequence[int], counts: np.ndarray) -> np.ndarray:
    """Returns for each row the value of its message, int64; for one message an array of this value, which fits rows."""
    numbers = np.array(values, np.int64)
    return numbers if len(numbers) == 1 else np.repeat(numbers, counts)


def sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the sum of each message's rows, int64 (n,)."""
    if len(counts) == 1:
        return np.array([values.sum(dtype=np.int64)])
    return _of_messages(np.add, values, counts)


def check_index(name: str, values: np.ndarray, limits: Sequence[int], counts: np.ndarray) -> None:
    """Checks that the indices of each message are below its limit."""
    if not len(values) or values.max() < min(limits):
        return
    largest = _of_messages(np.maximum, values, counts)
    for most, limit, rows in zip(largest.tolist(), limits, counts.tolist(), strict=True):
        if rows and most >= limit:
            raise BadMessage(name, f"expected indices below {limit}, got {most}")


def check_times(name: str, values: np.ndarray, times: Sequence[Times], counts: np.ndarray) -> None:
    """Checks the times (int64) of each message by its own limits."""
    if len(counts) == 1:
        times[0].check_column(name, values)
        return
    firsts, lasts = _of_messages(np.minimum, values, counts), _of_messages(np.maximum, values, counts)
    for limits, first, last, rows in zip(times, firsts.tolist(), lasts.tolist(), counts.tolist(), strict=True):
        if rows:
            limits.check_range(name, first, last)


def _of_messages(operation: np.ufunc, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns for each message the sum, or the maximum or minimum, of its rows: int64 (n,), 0 if it has none."""
    result = np.zeros(len(counts), np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        result[some] = operation.reduceat(values, index_ranges.starts(counts)[some], dtype=np.int64)
    return result


def split(columns: dict[str, np.ndarray], counts: np.ndarray, parts: Sequence[dict[str, np.ndarray]]) -> None:
    """Adds the rows of each message to its part."""
    ends = np.cumsum(counts)
    bounds = [slice(*one) for one in zip((ends - counts).tolist(), ends.tolist(), strict=True)]
    for name, values in columns.items():
        for part, rows in zip(parts, bounds, strict=True):
            part[name] = values[rows]
