"""Computes the content IDs of a batch's locations, nodes and stacks (schemas/ids.md), column by column."""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from icestream import ids, index_ranges, sorted_keys
from icestream.messages.raw import MAX_DEPTH, RawColumns
from icestream.recent_keys import RecentKeys

KNOWN_STACKS = 1_000_000
"""Stacks whose IDs a worker remembers, 16 bytes each."""
_FACTOR = 0x9E3779B97F4A7C15
_POWERS = np.array(list(accumulate(range(MAX_DEPTH), lambda p, _: p * _FACTOR % 2**64, initial=1)), dtype=np.uint64)


@dataclass(frozen=True)
class Nodes:
    """The f nodes of some stacks: frame by frame, leaf first, stack after stack."""

    node_id: np.ndarray  # uint64 (f,)
    parent: np.ndarray  # uint64 (f,), 0: a root
    location: np.ndarray  # int64 (f,), rows of the batch's locations
    leaf: np.ndarray  # int64 (stacks,), the row of each stack's leaf
    stacks: np.ndarray  # int64 (stacks,), rows of the batch's stacks, ascending

    def of(self, stacks: np.ndarray) -> "Nodes | None":
        """Returns the nodes of some of the stacks (rows of the batch's stacks); None if these have another one."""
        at = sorted_keys.find(self.stacks, stacks)
        if (at < 0).any():
            return None
        depth = np.diff(self.leaf, append=len(self.node_id))[at]
        rows = index_ranges.expand(self.leaf[at], depth)
        return Nodes(self.node_id[rows], self.parent[rows], self.location[rows], index_ranges.starts(depth), stacks)


@dataclass(frozen=True)
class StackIds:
    """The IDs of a batch's stacks."""

    stack_id: np.ndarray  # uint64 (s,), 0 where the stack is empty
    new: Nodes | None  # of the stacks that were not known; None: all were


def known_stacks(limit: int = KNOWN_STACKS) -> RecentKeys:
    """Stack IDs by a hash of the stack's frames."""
    return RecentKeys(limit, np.uint64)


def location_ids(raw: RawColumns) -> np.ndarray:
    """uint64 (l,)."""
    mapping_ids = np.array([ids.mapping_id(m.build_id, m.file) for m in raw.mappings], dtype=np.uint64)
    if not len(raw.location_mapping):
        return np.empty(0, np.uint64)
    first = mapping_ids[raw.location_mapping]
    second = raw.location_address.copy()
    named = np.flatnonzero(raw.named[raw.location_mapping])
    if len(named):
        first[named] = _named_ids(raw, raw.location_function[named], raw.location_file[named])
        second[named] = raw.location_line[named]
    location_id = ids.combine(first, second)
    if len(raw.line_function):
        _add_lines(raw, location_id)
    return location_id


def _named_ids(raw: RawColumns, function: np.ndarray, file: np.ndarray) -> np.ndarray:
    """Returns what the IDs of named locations and of lines are combined from: uint64, of the shape of the columns."""
    # Each pair of function and file is hashed once.
    distinct, inverse = np.unique(function.astype(np.uint64) << np.uint64(32) | file, return_inverse=True)
    rows = (distinct >> np.uint64(32)).tolist(), (distinct & np.uint64(0xFFFFFFFF)).tolist()
    functions, files = (map(raw.strings.__getitem__, of_texts) for of_texts in rows)
    hashes: np.ndarray = ids.named_ids(functions, files)[inverse]
    return hashes


def _add_lines(raw: RawColumns, location_id: np.ndarray) -> None:
    """Combines the IDs of locations with the lines that the sender gave them, level by level."""
    line_id = ids.combine(_named_ids(raw, raw.line_function, raw.line_file), raw.line_number)
    line_id = ids.combine(line_id, raw.line_start_line)
    first = index_ranges.starts(raw.location_line_count)
    for level in range(int(raw.location_line_count.max())):
        rows = np.flatnonzero(raw.location_line_count > level)
        location_id[rows] = ids.combine(location_id[rows], line_id[first[rows] + level])


def stack_ids(raw: RawColumns, location_id: np.ndarray, known: RecentKeys) -> StackIds:
    """Nodes are computed only for stacks that are not known yet."""
    keys = _stack_keys(raw, location_id)
    stack_id = known.find(keys)
    unknown = np.flatnonzero((stack_id == 0) & (raw.stack_depth > 0))
    stack_id[raw.stack_depth == 0] = 0
    if not len(unknown):
        return StackIds(stack_id, None)
    new = nodes(raw, location_id, unknown)
    stack_id[unknown] = new.node_id[new.leaf]
    known.add(keys[unknown], stack_id[unknown])
    return StackIds(stack_id, new)


def nodes(raw: RawColumns, location_id: np.ndarray, stacks: np.ndarray) -> Nodes:
    """Returns the nodes of some stacks (rows, int64). Computes all stacks at once, level by level from the roots."""
    depth = raw.stack_depth[stacks]
    ends = np.cumsum(depth)
    location = raw.stack_frames[index_ranges.expand(index_ranges.starts(raw.stack_depth)[stacks], depth)]
    frames = location_id[location]
    node_id, node_parent_id = np.empty_like(frames), np.zeros_like(frames)
    # Deepest first: the stacks that reach a level are then a prefix.
    order = np.argsort(-depth, kind="stable")
    deep = depth[order]
    row = (ends - 1)[order]  # a stack's root is its last frame
    reach = np.searchsorted(-deep, -np.arange(deep.max(initial=0)), side="left")
    parent = np.zeros(len(depth), np.uint64)
    for stacks_so_deep in reach.tolist():
        parent, row = parent[:stacks_so_deep], row[:stacks_so_deep]
        node_parent_id[row] = parent
        parent = ids.combine(parent, frames[row])
        node_id[row] = parent
        row = row - 1
    return Nodes(node_id, node_parent_id, location.astype(np.int64), ends - depth, stacks)


def _stack_keys(raw: RawColumns, location_id: np.ndarray) -> np.ndarray:
    """Returns a hash of each stack: the sum of its location IDs, each times an odd number for its position."""
    keys = np.zeros(len(raw.stack_depth), np.uint64)
    occupied = np.flatnonzero(raw.stack_depth)
    if len(occupied):
        depth = raw.stack_depth[occupied]
        powers = _POWERS[index_ranges.positions(depth)]
        keys[occupied] = np.add.reduceat(location_id[raw.stack_frames] * powers, index_ranges.starts(depth))
    return keys
