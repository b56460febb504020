"""Decodes numbers of DWARF, one or many at once: LEB128 (DWARF 5, section 7.6), and numbers of fixed size."""

import numpy as np

MAX_BYTES = 8
"""The longest number: 56 bits. Longer ones are TOO_LONG."""
TOO_LONG = -(1 << 62)
PADDING = 32
"""Zero bytes that must follow the data, so that every number ends within them."""


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at `at`, and its end. Raises IndexError if it is cut off, and ValueError if it is longer than
    MAX_BYTES."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 7 * MAX_BYTES:
            raise ValueError(f"a number of more than {MAX_BYTES} bytes")
    return value | data[at] << shift, at + 1


def read_signed(data: bytes, at: int) -> tuple[int, int]:
    """Returns the same as `read_unsigned`, for a signed number."""
    value, end = read_unsigned(data, at)
    return value - (1 << 7 * (end - at)) if data[end - 1] & 0x40 else value, end


def ends(data: np.ndarray) -> np.ndarray:
    """Returns where a number that starts at each byte of `data` (uint8) ends (int32), in the padding at the latest."""
    at = np.arange(len(data), dtype=np.int32)
    last = np.where(data < 0x80, at, np.int32(len(data) - 1))
    result: np.ndarray = np.minimum.accumulate(last[::-1])[::-1] + 1
    return result


def unsigned(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values and ends (int64) of the numbers at `at`; TOO_LONG for one longer than MAX_BYTES."""
    value, end, more, _ = _read(data, at)
    value[more] = TOO_LONG
    return value, end


def signed(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same as `unsigned`, for signed numbers."""
    value, end, more, last = _read(data, at)
    negative = last & 0x40 != 0
    value[negative] -= np.left_shift(1, 7 * (end - at)[negative])
    value[more] = TOO_LONG
    return value, end


def _read(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns values, ends, whether more bytes follow, and last bytes."""
    byte = data[at].astype(np.int64)
    value = byte & 0x7F
    end = at.astype(np.int64) + 1
    more = byte >= 0x80
    last = byte
    for i in range(1, MAX_BYTES):
        open_ = np.flatnonzero(more)
        if not len(open_):
            break
        byte = data[end[open_]].astype(np.int64)
        value[open_] |= (byte & 0x7F) << (7 * i)
        last[open_] = byte
        end[open_] += 1
        more[open_] = byte >= 0x80
    return value, end, more, last


def words(data: np.ndarray, at: np.ndarray, number_format: str) -> np.ndarray:
    """Returns the numbers of a numpy format at any offsets; beyond the end, the last number in the data."""
    size = np.dtype(number_format).itemsize
    windows = np.lib.stride_tricks.sliding_window_view(data, size)
    result: np.ndarray = windows[np.clip(at, 0, len(windows) - 1)].view(number_format).ravel()
    return result
