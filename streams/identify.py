"""Content IDs of a batch's locations, stacks and series (schemas/ids.md), column by column."""

from dataclasses import dataclass

import numpy as np

from icestream import ids
from streams.columns import RawColumns


@dataclass(frozen=True)
class Stacks:
    """IDs of s stacks and of every node on their way, f in all, in the order of RawColumns.stack_frames."""

    stack_id: np.ndarray  # uint64 (s,), 0 where the stack is empty
    node_id: np.ndarray  # uint64 (f,)
    node_parent: np.ndarray  # uint64 (f,), 0: a root


def location_ids(raw: RawColumns) -> np.ndarray:
    """uint64 (l,)."""
    mapping_ids = np.array([ids.mapping_id(m.build_id, m.file) for m in raw.mappings], dtype=np.uint64)
    if not len(raw.location_mapping):
        return np.empty(0, np.uint64)
    first = mapping_ids[raw.location_mapping]
    second = raw.location_address.copy()
    named = np.flatnonzero(raw.named[raw.location_mapping])
    if len(named):
        # Each pair of function and file is hashed once.
        pairs = raw.location_function[named].astype(np.uint64) << np.uint64(32) | raw.location_file[named]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        hashes = [ids.named_id(raw.strings[pair >> 32], raw.strings[pair & 0xFFFFFFFF]) for pair in distinct.tolist()]
        first[named] = np.array(hashes, dtype=np.uint64)[inverse]
        second[named] = raw.location_line[named]
    return ids.combine(first, second)


def stacks(raw: RawColumns, location_id: np.ndarray) -> Stacks:
    """Node IDs, computed level by level from the roots, all stacks at once."""
    depth = raw.stack_depth
    frames = location_id[raw.stack_frames]
    node_id, node_parent = np.empty_like(frames), np.zeros_like(frames)
    stack_id = np.zeros(len(depth), np.uint64)
    if not len(frames):
        return Stacks(stack_id, node_id, node_parent)
    # Deepest first: the stacks that reach a level are then a prefix.
    order = np.argsort(-depth, kind="stable")
    deep = depth[order]
    row = (np.cumsum(depth) - 1)[order]  # a stack's root is its last frame
    reach = np.searchsorted(-deep, -np.arange(deep[0]), side="left")
    parent = np.zeros(len(depth), np.uint64)
    for stacks_here in reach.tolist():
        parent, row = parent[:stacks_here], row[:stacks_here]
        node_parent[row] = parent
        parent = ids.combine(parent, frames[row])
        node_id[row] = parent
        row = row - 1
    occupied = depth > 0
    stack_id[occupied] = node_id[(np.cumsum(depth) - depth)[occupied]]
    return Stacks(stack_id, node_id, node_parent)


def series_id(labels: tuple[tuple[str, str], ...]) -> int:
    """ID of a series."""
    return ids.series_id(labels)
