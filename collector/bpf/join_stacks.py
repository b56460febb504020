"""Joins samples with the stacks and names that they refer to: the kernel sends them apart from each other."""

from typing import NamedTuple

import numpy as np

from collector.bpf import records
from collector.bpf.records import Descriptions
from collector.bpf.samples import DrainedSamples
from icestream.columns import index_ranges, sorted_keys


class CodeRange(NamedTuple):
    """Addresses [start, end)."""

    start: int
    end: int


NO_CODE = CodeRange(0, 0)

_SEARCHED = 8  # innermost kernel frames, for one in the code to leave out


class Joined(NamedTuple):
    samples: DrainedSamples
    missing: int  # records without a stack, which are not in `samples`
    records: np.ndarray  # the records that have a stack, in the order of `samples`


def join(
    samples: np.ndarray, descriptions: Descriptions, before: Descriptions, leave_out: CodeRange = NO_CODE
) -> Joined:
    """Joins records of samples (n, at least 7 words) with their stacks and the names of their spans.

    Looks for these in `descriptions`, then in `before`. Where a kernel frame is in the code `leave_out`, leaves out
    that frame and those further in.
    """
    keys, stack = np.unique(samples[:, 1], return_inverse=True)
    stacks, has_stack = _find(keys, descriptions, before)
    missing = 0
    if not has_stack.all():
        keep = has_stack[stack]
        missing = int((~keep).sum())
        samples, stack = samples[keep], (np.cumsum(has_stack) - 1)[stack[keep]]
    contexts, context = records.distinct_contexts(samples[:, 3:6])
    span_name, span_names = _span_names(samples[:, 6], descriptions, before)
    managed = records.managed_frames(stacks)
    depth, kernel_depth, frames = _frames(stacks, leave_out)
    return Joined(
        DrainedSamples(
            time_monotonic_ns=samples[:, 0].copy(),
            pid=samples[:, 2].astype(np.uint32),
            tid=(samples[:, 2] >> np.uint64(32)).astype(np.uint32),
            stack=stack.astype(np.uint32),
            context=context,
            stack_pid=stacks.pid,
            stack_kernel_depth=kernel_depth,
            stack_depth=depth,
            frames=frames,
            trace_ids=contexts[:, :2].tobytes(),
            span_ids=contexts[:, 2].tobytes(),
            stack_end=stacks.end,
            stack_managed=stacks.managed_depth.astype(np.uint32),
            managed_words=managed[:, 0].copy(),
            managed_info=managed[:, 1].copy(),
            comms=records.thread_names(descriptions),
            span_name=span_name,
            span_names=span_names,
        ),
        missing,
        samples,
    )


def _find(keys: np.ndarray, descriptions: Descriptions, before: Descriptions) -> tuple[Descriptions, np.ndarray]:
    """The descriptions of the distinct `keys`, in the order of the keys; and which keys have one (bool)."""
    rows, has_stack = _rows(keys, descriptions)
    if not has_stack.all() and len(before.key):
        descriptions = records.concatenate(descriptions, before)
        rows, has_stack = _rows(keys, descriptions)
    return records.select(descriptions, rows[has_stack]), has_stack


def _rows(keys: np.ndarray, descriptions: Descriptions) -> tuple[np.ndarray, np.ndarray]:
    stacks = np.flatnonzero(descriptions.kind == records.STACK)
    stacks = stacks[np.argsort(descriptions.key[stacks], kind="stable")]
    row = sorted_keys.find(descriptions.key[stacks], keys)
    return (stacks[row] if len(stacks) else row), row >= 0


def _span_names(
    keys: np.ndarray, descriptions: Descriptions, before: Descriptions
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Samples.span_name and Samples.span_names."""
    if not keys.any():
        return None, ()
    known = records.span_names(before) | records.span_names(descriptions)
    distinct, of_sample = np.unique(keys, return_inverse=True)
    names = {key: known[key] for key in distinct.tolist() if key in known}
    row = {key: i for i, key in enumerate(names, 1)}
    rows = np.array([row.get(key, 0) for key in distinct.tolist()], np.uint32)
    return rows[of_sample], tuple(names.values())


def _frames(stacks: Descriptions, leave_out: CodeRange) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth and kernel depth of each stack (uint32), and the frames of all (uint64)."""
    kernel_depth, frames = stacks.kernel_depth.astype(np.uint32), records.frames(stacks)
    depth = kernel_depth + stacks.user_depth
    if not any(leave_out) or not len(frames):
        return depth, kernel_depth, frames
    first = index_ranges.starts(depth)
    near = np.arange(min(_SEARCHED, len(frames)))
    at = np.minimum(first[:, None] + near, len(frames) - 1)
    inside = (frames[at] >= leave_out.start) & (frames[at] < leave_out.end) & (near < kernel_depth[:, None])
    out = np.where(inside.any(axis=1), inside.argmax(axis=1) + 1, 0)
    # The frame that is the innermost now is a return address, and later code cannot know that: move it into the call.
    left = np.flatnonzero((out > 0) & (out < depth))
    frames[(first + out)[left]] -= (out < kernel_depth)[left].astype(np.uint64)
    keep = index_ranges.positions(depth) >= np.repeat(out, depth)
    return (depth - out).astype(np.uint32), (kernel_depth - out).astype(np.uint32), frames[keep]
