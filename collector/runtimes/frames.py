"""Managed frames as the eBPF program sends them (bpf/managed.h)."""

import enum
from typing import NamedTuple

import numpy as np

WITH_NEXT, UNPLACED = 1022, 1023
_PLACE_SHIFT, _KIND_SHIFT = np.uint64(48), np.uint64(60)
_PLACE, _OBJECT, _LOW = np.uint64(1023), np.uint64((1 << 48) - 1), np.uint64(0xFFFFFFFF)
_NOT_PLACE = ~(_PLACE << _PLACE_SHIFT)


class Kind(enum.IntEnum):
    """What the object of a managed frame is: `enum managed_kind`."""

    OTHERS_MISSING = 0
    PYTHON_CODE = 1
    V8_FUNCTION = 2
    HOTSPOT_CODE = 3
    HOTSPOT_METHOD = 4
    V8_CODE = 5  # only in requests


class ManagedFrame(NamedTuple):
    """A frame of a process. `position` says where in the object it executes, in the runtime's own units."""

    pid: int
    kind: int
    object: int
    check: int
    position: int


def place(words: np.ndarray) -> np.ndarray:
    """Which user frame each frame (first words, uint64) replaces: int64; WITH_NEXT, UNPLACED."""
    return (words >> _PLACE_SHIFT & _PLACE).astype(np.int64)


def kinds(words: np.ndarray) -> np.ndarray:
    """The Kind of each frame (first words, uint64)."""
    return words >> _KIND_SHIFT


def without_place(words: np.ndarray) -> np.ndarray:
    return words & _NOT_PLACE


def parse(pid: np.ndarray, words: np.ndarray, info: np.ndarray) -> list[ManagedFrame]:
    """The frames of these processes (uint32), whose two words (uint64) these are."""
    columns = pid, words >> _KIND_SHIFT, words & _OBJECT, info >> np.uint64(32), info & _LOW
    return list(map(ManagedFrame, *(column.tolist() for column in columns)))


def kind_and_object(request: int) -> tuple[int, int]:
    """Returns what the value of a request for an object says."""
    return request >> int(_KIND_SHIFT), request & int(_OBJECT)
