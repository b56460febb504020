"""Merges Python frames into the native frames of a stack.

A run of Python frames replaces the native frame of the C function that executed it. The C functions between two runs
stay: sorted(), which one Python function calls and which calls another. A run whose native frame is missing, because
the stack was cut before it, becomes the outermost part.
"""

from typing import NamedTuple

import numpy as np

from icestream.columns import index_ranges

MAX_FRAMES = 127  # bpf/walk.h
WITH_NEXT, UNPLACED = 254, 255  # bpf/python_frames.h
_LAST_POSITION = 4095
_PLACES = np.uint64(1 << 20)  # positions (12 bits) times frames of a run (8 bits)


class PythonFrames(NamedTuple):
    """The p Python frames of all stacks."""

    stack: np.ndarray  # int64 (p,)
    position: np.ndarray  # int64 (p,): of the native frame that it replaces, counted from the leaf
    order: np.ndarray  # int64 (p,): among the Python frames of its stack
    placed: np.ndarray  # bool (p,): whether that native frame exists


def python_frames(kernel_depth: np.ndarray, python_depth: np.ndarray, info: np.ndarray) -> PythonFrames:
    """Returns the Python frames of s stacks (depths: int64); `info` (uint64) is as the eBPF program sends it."""
    stack = index_ranges.owners(python_depth)
    order = index_ranges.positions(python_depth)
    frame = (info >> np.uint64(56)).astype(np.int64)
    ends = np.flatnonzero(frame != WITH_NEXT)
    if len(ends):  # the outermost frame of a run has the position for all of it
        frame = frame[ends[np.minimum(np.searchsorted(ends, np.arange(len(frame))), len(ends) - 1)]]
    placed = frame < WITH_NEXT
    position = np.where(placed, kernel_depth[stack] + frame, _LAST_POSITION)
    return PythonFrames(stack, position, order, placed)


def add_cuts(frames: PythonFrames, python_depth: np.ndarray) -> tuple[PythonFrames, int]:
    """Adds an outermost frame to each stack with as many frames as the program reads at most: others are missing there.
    Returns how many it added."""
    last = np.cumsum(python_depth)[python_depth >= MAX_FRAMES] - 1
    stack, position, order, placed = (np.concatenate([column, column[last]]) for column in frames)
    order[len(frames.order) :] += 1
    return PythonFrames(stack, position, order, placed), len(last)


def merge(
    stack: np.ndarray, position: np.ndarray, generated: np.ndarray, python: PythonFrames
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the frames in order, as rows of the n native frames (`stack`, `position`: int64, `generated`: bool)
    followed by the p Python frames; and the stack of each.

    `generated` are native frames of code compiled at run time: `python -X perf` calls the function that executes
    bytecode through a piece of code with the Python function's name, which would show the function twice.
    """
    key = stack.astype(np.uint64) * _PLACES + (position.astype(np.uint64) << np.uint64(8))
    python_key = python.stack.astype(np.uint64) * _PLACES + (python.position.astype(np.uint64) << np.uint64(8))
    executing = np.isin(key, python_key[python.placed])
    trampoline = generated & np.isin(key, python_key[python.placed] + np.uint64(1 << 8))
    native = np.flatnonzero(~executing & ~trampoline)
    rows = np.concatenate([native, len(stack) + np.arange(len(python_key))])
    order = np.argsort(np.concatenate([key[native], python_key + python.order.astype(np.uint64)]), kind="stable")
    return rows[order], np.concatenate([stack[native], python.stack])[order]
