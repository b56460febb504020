"""Computes the content IDs of locations, nodes and stacks (schemas/ids.md), column by column."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icestream import ids
from icestream.columns import index_ranges
from icestream.columns.row_indices import renumber
from icestream.messages.raw import StackFrames
from icestream.v1.common_pb2 import Mapping

_AT_ONCE = 16_384
"""Frames whose terms are computed at once: what that needs stays in the caches of a CPU."""


@dataclass(frozen=True)
class StackNodes:
    """The f nodes of some stacks: frame by frame, leaf first, stack after stack."""

    node_id: np.ndarray  # uint64 (f,)
    parent: np.ndarray  # uint64 (f,), 0: a root
    location: np.ndarray  # integers (f,), rows of locations
    location_id: np.ndarray  # uint64 (f,)
    leaf: np.ndarray  # int64 (stacks,), the row of each stack's leaf


def stack_ids(columns: StackFrames) -> np.ndarray:
    """Returns the IDs of stacks: uint64 (s,), 0 where a stack is empty. Those that the sender gave are taken as they
    are: the announcer of a stack checks them."""
    missing = np.flatnonzero((columns.stack_id == 0) & (columns.stack_depth > 0))
    if not len(missing):
        return columns.stack_id
    found = columns.stack_id.copy()
    frames = _frames(columns, missing)
    found[missing] = ids.to_ids(np.add.reduceat(frames.term, frames.leaf))
    return found


def nodes(columns: StackFrames, stacks: np.ndarray) -> StackNodes:
    """Returns the nodes of some stacks (rows, none of them empty)."""
    frames = _frames(columns, stacks)
    sums = np.cumsum(frames.term)
    depth = frames.root - frames.leaf + 1
    node_id = ids.to_ids(np.repeat(sums[frames.root], depth) - sums + frames.term)
    parent = np.zeros_like(node_id)
    parent[:-1] = node_id[1:]
    parent[frames.root] = 0
    return StackNodes(node_id, parent, frames.location, frames.location_id[frames.row], frames.leaf)


def ids_of_stacks(location_id: np.ndarray, frames: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Returns the IDs of stacks that follow each other: uint64 (stacks,), 0 where a stack is empty. `frames`: rows of
    location_id, leaf first; `depth`: of each stack, int64."""
    found = index_ranges.sums(_terms(location_id, frames, np.repeat(np.cumsum(depth) - 1, depth)), depth)
    return np.where(depth > 0, ids.to_ids(found), np.uint64(0))


class _Frames(NamedTuple):
    """The f frames of some stacks: leaf first, stack after stack."""

    location: np.ndarray  # integers (f,), rows of locations
    row: np.ndarray  # integers (f,), rows of location_id
    location_id: np.ndarray  # uint64 (used locations,)
    term: np.ndarray  # uint64 (f,): a node's ID is the sum of those from its frame to the root
    leaf: np.ndarray  # int64 (stacks,), row of each stack's first frame
    root: np.ndarray  # int64 (stacks,), row of each stack's last frame


def _frames(columns: StackFrames, stacks: np.ndarray) -> _Frames:
    depth = columns.stack_depth[stacks]
    if len(stacks) == len(columns.stack_depth):
        location = row = columns.stack_frames
        used = np.arange(len(columns.location_mapping))
    else:
        location = columns.stack_frames[index_ranges.rows_of(stacks, columns.stack_depth)]
        used, row = renumber(location, len(columns.location_mapping))
    location_id = location_ids(columns, used)
    root = np.cumsum(depth) - 1
    return _Frames(location, row, location_id, _terms(location_id, row, np.repeat(root, depth)), root - depth + 1, root)


def _terms(location_id: np.ndarray, row: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Returns the term of each frame: of its location, and how far it is from the root. `row`: of location_id; `root`:
    the row of its stack's last frame."""
    begun = ids.begin(location_id)
    term = np.empty(len(row), np.uint64)
    for first in range(0, len(row), _AT_ONCE):
        part = slice(first, min(first + _AT_ONCE, len(row)))
        term[part] = ids.complete(begun[row[part]], root[part] - np.arange(part.start, part.stop))
    return term


def location_ids(columns: StackFrames, rows: np.ndarray) -> np.ndarray:
    """Returns the IDs of some locations (rows, int64): uint64 (rows,)."""
    used, mapping = renumber(columns.location_mapping[rows], len(columns.mappings))
    mappings = [columns.mappings[row] for row in used.tolist()]
    first = np.array([ids.mapping_id(one.build_id, one.file) for one in mappings], np.uint64)[mapping]
    second = columns.location_address[rows]
    is_named = np.array([one.kind == Mapping.NAMED for one in mappings], bool)[mapping]
    if is_named.any():
        named = rows[is_named]
        first[is_named] = _function_hashes(columns, columns.location_function[named], columns.location_file[named])
        second[is_named] = columns.location_line[named]
    location_id = ids.combine(first, second)
    count = columns.location_line_count[rows]
    if count.any():
        lines = index_ranges.rows_of(rows, columns.location_line_count)
        _add_lines(location_id, count, _line_ids(columns, lines))
    return location_id


def _add_lines(location_id: np.ndarray, count: np.ndarray, line_id: np.ndarray) -> None:
    """Combines the IDs of locations with the lines that the sender gave them, level by level."""
    first = index_ranges.starts(count)
    for level in range(int(count.max())):
        rows = np.flatnonzero(count > level)
        location_id[rows] = ids.combine(location_id[rows], line_id[first[rows] + level])


def _line_ids(columns: StackFrames, lines: np.ndarray) -> np.ndarray:
    hashes = _function_hashes(columns, columns.line_function[lines], columns.line_file[lines])
    start_lines = columns.line_start_line[lines].astype(np.uint64)
    numbers = start_lines << np.uint64(32) | columns.line_number[lines].astype(np.uint64)
    return ids.combine(hashes, numbers)


def _function_hashes(columns: StackFrames, function: np.ndarray, file: np.ndarray) -> np.ndarray:
    """Returns the hash of each function in its file: uint64, of the shape of the columns. Each text is hashed once."""
    rows = np.stack([function, file])
    texts = columns.strings
    if len(function) < len(texts) // 8:  # else it is quicker to take all
        used, rows = renumber(rows, len(texts))
        texts = [texts[text] for text in used.tolist()]
    hashes = ids.text_hashes(texts)[rows]
    return ids.combine(hashes[0], hashes[1])
