"""What all decoders share: checks of a message's columns, and columns as Arrow arrays.

Everything that a table could refuse is refused here, message by message, so that one bad message never holds up the
block that it would have been part of.
"""

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from icestream import packed

M = TypeVar("M", bound=Message)

MAX_UNIX_NANO = 4_102_444_800 * 10**9
"""Times from 1970 to 2100 are stored: what fits every type that a time has on its way."""
_DAY_NS = 86_400 * 10**9
_MAX_DAYS = 60  # of one message: each is another partition of a table


class BadMessage(ValueError):
    """A message that cannot be stored; the text says why."""


def parse(kind: type[M], data: bytes | None) -> M:
    """The message; raises BadMessage."""
    message = kind()
    try:
        message.ParseFromString(data or b"")
    except DecodeError as error:
        raise BadMessage(f"not a {kind.DESCRIPTOR.name}: {error}") from None
    return message


def columns(message: Message, *names: str) -> list[np.ndarray]:
    """Parallel columns of the message; raises BadMessage where their lengths differ."""
    arrays = [packed.column(message, name) for name in names]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in zip(names, arrays, strict=True))
        raise BadMessage(f"columns of different lengths: {lengths}")
    return arrays


def check_rows(rows: np.ndarray, size: int, what: str) -> None:
    """Raises BadMessage where `rows` points outside of `size` entries."""
    if len(rows) and int(rows.max()) >= size:
        raise BadMessage(f"{what} {int(rows.max())} of {size}")


def check_times(unix_nano: np.ndarray) -> None:
    """Raises BadMessage where int64 times are before 1970, after 2100, or lie on more than 60 days."""
    if not len(unix_nano):
        return
    first, last = int(unix_nano.min()), int(unix_nano.max())
    if first < 0 or last >= MAX_UNIX_NANO:
        raise BadMessage(f"times from {first} to {last} ns after 1970: not between 1970 and 2100")
    if last - first > _MAX_DAYS * _DAY_NS and len(np.unique(unix_nano // _DAY_NS)) > _MAX_DAYS:
        raise BadMessage(f"times on more than {_MAX_DAYS} days in one message")


def ids(data: bytes, width: int, what: str) -> np.ndarray:
    """Trace or span IDs, `width` bytes each, as uint8 (n, width); raises BadMessage."""
    if len(data) % width:
        raise BadMessage(f"{what}: {len(data)} bytes are not a multiple of {width}")
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def binary(rows: np.ndarray) -> pa.Array:
    """uint8 (n, width) as fixed_size_binary(width)."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])


def texts(rows: np.ndarray, values: list[str]) -> pa.DictionaryArray:
    """values[rows] as a dictionary; a value that comes twice is one entry."""
    place = {value: i for i, value in enumerate(dict.fromkeys(values))}
    moved = np.array([place[value] for value in values], np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(moved[rows] if len(rows) else rows.astype(np.int32)), list(place) or [""]
    )


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """One text, `rows` times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [value])


def milliseconds(values: np.ndarray) -> pa.Array:
    """int64 milliseconds since 1970 as timestamps."""
    return pa.array(values.astype(np.int64), pa.timestamp("ms", "UTC"))


def together(tables: list[pa.Table]) -> pa.Table:
    """Tables of one schema as one table in one chunk, dictionaries joined; at least one table."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def last_seen(unix_nano: int, rows: int) -> pa.Array:
    """One time, `rows` times, in seconds."""
    return pa.array(np.full(rows, unix_nano // 10**9, np.int64), pa.timestamp("s", "UTC"))


def text_list(values: list[Any]) -> list[str]:
    """A repeated string field, never empty."""
    return [str(value) for value in values] or [""]
