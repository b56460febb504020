"""Samples and the stacks they refer to, which come from the kernel apart from each other, brought together."""

import numpy as np

from collector.bpf import records
from collector.bpf.records import Descriptions
from collector.bpf.samples import Samples
from icestream import index_ranges, sorted_keys

Code = tuple[int, int]
"""Addresses [start, end)."""

_SEARCHED = 8  # kernel frames, for the one that is to be left out


def join(
    samples: np.ndarray, descriptions: Descriptions, before: Descriptions, leave_out: Code = (0, 0)
) -> tuple[Samples, int, np.ndarray]:
    """Records of samples (n, at least 6 words) as columns; how many there are without a stack, which are not in it; and
    the records that are.

    A stack is looked for in `descriptions`, then in `before`. Of kernel frames the innermost ones are left out, up to
    one in the code `leave_out` where there is one.
    """
    keys, stack = np.unique(samples[:, 1], return_inverse=True)
    stacks, found = _find(keys, descriptions, before)
    missing = 0
    if not found.all():
        keep = found[stack]
        missing = int((~keep).sum())
        samples, stack = samples[keep], (np.cumsum(found) - 1)[stack[keep]]
    contexts, context = records.distinct_contexts(samples[:, 3:6])
    python = records.python_frames(stacks)
    depth, kernel_depth, frames = _frames(stacks, leave_out)
    return (
        Samples(
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
            stack_python=stacks.python_depth.astype(np.uint32),
            python_code=python[:, 0].copy(),
            python_info=python[:, 1].copy(),
            comms=records.thread_names(descriptions),
        ),
        missing,
        samples,
    )


def _find(keys: np.ndarray, descriptions: Descriptions, before: Descriptions) -> tuple[Descriptions, np.ndarray]:
    """The stacks of the distinct `keys` that are described, in the order of the keys; and which keys those are."""
    rows, found = _rows(keys, descriptions)
    if not found.all() and len(before.key):
        descriptions = records.concatenate(descriptions, before)
        rows, found = _rows(keys, descriptions)
    return records.select(descriptions, rows[found]), found


def _rows(keys: np.ndarray, descriptions: Descriptions) -> tuple[np.ndarray, np.ndarray]:
    stacks = np.flatnonzero(descriptions.kind == records.STACK)
    stacks = stacks[np.argsort(descriptions.key[stacks], kind="stable")]
    row = sorted_keys.find(descriptions.key[stacks], keys)
    return (stacks[row] if len(stacks) else row), row >= 0


def _frames(stacks: Descriptions, leave_out: Code) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth and kernel depth of each stack (uint32), and the frames of all (uint64)."""
    kernel_depth, frames = stacks.kernel_depth.astype(np.uint32), records.frames(stacks)
    depth = kernel_depth + stacks.user_depth
    if not any(leave_out) or not len(frames):
        return depth, kernel_depth, frames
    first = index_ranges.starts(depth)
    near = np.arange(min(_SEARCHED, len(frames)))
    at = np.minimum(first[:, None] + near, len(frames) - 1)
    inside = (frames[at] >= leave_out[0]) & (frames[at] < leave_out[1]) & (near < kernel_depth[:, None])
    out = np.where(inside.any(axis=1), inside.argmax(axis=1) + 1, 0)
    # What is the first now is a return address, and nobody can tell any more.
    left = np.flatnonzero((out > 0) & (out < depth))
    frames[(first + out)[left]] -= (out < kernel_depth)[left].astype(np.uint64)
    kept = index_ranges.positions(depth) >= np.repeat(out, depth)
    return (depth - out).astype(np.uint32), (kernel_depth - out).astype(np.uint32), frames[kept]
