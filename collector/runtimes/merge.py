"""Merges managed frames into the native frames of a stack.

Managed frames replace the native frame of the code that executed them: one of a compiler's code its own, a run of an
interpreter's the C function that executes bytecode. Native frames between two runs stay: sorted(), which one Python
function calls and which calls another. A run whose native frame is missing, because the stack was cut before it,
becomes the outermost part.
"""

from typing import NamedTuple

import numpy as np

from collector.runtimes.frames import WITH_NEXT, Kind, kinds, place
from icestream.columns import index_ranges

_LAST_POSITION = 4095
_PLACES = np.uint64(1 << 28)  # positions (12 bits) times frames of a run, inlined ones included (16 bits)
_POSITION_SHIFT = np.uint64(16)


class ManagedFrames(NamedTuple):
    """The m managed frames of all stacks."""

    stack: np.ndarray  # int64 (m,)
    position: np.ndarray  # int64 (m,): of the native frame that it replaces, counted from the leaf
    order: np.ndarray  # int64 (m,): among the managed frames of its stack
    placed: np.ndarray  # bool (m,): whether that native frame exists
    python: np.ndarray  # bool (m,): whether it is one of CPython

    def repeated(self, counts: np.ndarray) -> "ManagedFrames":
        """Each frame so many times (int64): those that were inlined into it come first."""
        stack = np.repeat(self.stack, counts)
        order = index_ranges.positions(np.bincount(stack, minlength=int(stack.max(initial=-1)) + 1))
        rest = (np.repeat(column, counts) for column in (self.placed, self.python))
        return ManagedFrames(stack, np.repeat(self.position, counts), order, *rest)


def managed_frames(kernel_depth: np.ndarray, managed_depth: np.ndarray, words: np.ndarray) -> ManagedFrames:
    """Returns the managed frames of s stacks (depths: int64), whose first words (uint64) these are."""
    stack = index_ranges.owners(managed_depth)
    order = index_ranges.positions(managed_depth)
    frame = place(words)
    ends = np.flatnonzero(frame != WITH_NEXT)
    if len(ends):  # the outermost frame of a run has the position for all of it
        frame = frame[ends[np.minimum(np.searchsorted(ends, np.arange(len(frame))), len(ends) - 1)]]
    placed = frame < WITH_NEXT
    position = np.where(placed, kernel_depth[stack] + frame, _LAST_POSITION)
    return ManagedFrames(stack, position, order, placed, kinds(words) == Kind.PYTHON_CODE)


def replaced(stack: np.ndarray, position: np.ndarray, managed: ManagedFrames) -> np.ndarray:
    """Which of these native frames (int64) have managed frames in their place: bool."""
    key = stack.astype(np.uint64) * _PLACES + position.astype(np.uint64)
    managed_key = managed.stack.astype(np.uint64) * _PLACES + managed.position.astype(np.uint64)
    return np.isin(key, managed_key[managed.placed])


def merge(
    stack: np.ndarray, position: np.ndarray, generated: np.ndarray, managed: ManagedFrames
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the frames in order, as rows of the n native frames (`stack`, `position`: int64, `generated`: bool)
    followed by the m managed frames; and the stack of each.

    `generated` are native frames of code compiled at run time: `python -X perf` calls the function that executes
    bytecode through a piece of code with the Python function's name, which would show the function twice.
    """
    key = stack.astype(np.uint64) * _PLACES + (position.astype(np.uint64) << _POSITION_SHIFT)
    managed_key = managed.stack.astype(np.uint64) * _PLACES + (managed.position.astype(np.uint64) << _POSITION_SHIFT)
    executing = np.isin(key, managed_key[managed.placed])
    of_python = managed_key[managed.placed & managed.python]
    trampoline = generated & np.isin(key, of_python + (np.uint64(1) << _POSITION_SHIFT))
    native = np.flatnonzero(~executing & ~trampoline)
    rows = np.concatenate([native, len(stack) + np.arange(len(managed_key))])
    order = np.argsort(np.concatenate([key[native], managed_key + managed.order.astype(np.uint64)]), kind="stable")
    return rows[order], np.concatenate([stack[native], managed.stack])[order]
