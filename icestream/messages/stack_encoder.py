"""Announcements of nodes and locations as messages of icestream.stacks, none larger than MAX_MESSAGE_BYTES."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from icestream.columns import packed
from icestream.messages.checks import MAX_LINE, MAX_LINES, MAX_NAME
from icestream.symbols.line import Line
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import Mapping, Source
from icestream.v1.stacks_pb2 import StackBatch

_NODE_BYTES = 24
_LOCATION_BYTES = 40  # columns, and the tags of its mapping
_LINE_BYTES = 28  # columns, and the tags of its strings
_HEADER_BYTES = 16_000
"""More than all of a message but its nodes and locations takes: the source's texts, tags and lengths."""
_LARGEST_LOCATION_BYTES = 300_000
"""More than one location takes: MAX_LINES lines with two texts of MAX_NAME characters of 4 bytes, and its mapping."""
_BUDGET = MAX_MESSAGE_BYTES - _HEADER_BYTES - _LARGEST_LOCATION_BYTES


class LocationNames(NamedTuple):
    """The lines of a location."""

    version: int  # 0: not named
    lines: tuple[Line, ...]  # innermost (inlined) first


@dataclass(frozen=True)
class NodeColumns:
    """n nodes of the call tree."""

    id: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # uint64 (n,)
    parent_id: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # uint64 (n,), 0: a root
    location_id: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # uint64 (n,)


@dataclass(frozen=True)
class LocationColumns:
    """l locations."""

    id: np.ndarray  # uint64 (l,)
    address: np.ndarray  # uint64 (l,)
    mapping: np.ndarray  # integers (l,), rows of mappings
    mappings: Sequence[Mapping]
    names: Sequence[LocationNames]  # (l,)


def encode_stacks(
    source: Source | None, published_unix_nano: int, seen_unix_nano: int, nodes: NodeColumns, locations: LocationColumns
) -> list[bytes]:
    """Returns as many StackBatches as are needed. `source`: of the first one; its part and parts are set here."""
    names = [LocationNames(version, _within_limits(lines)) for version, lines in locations.names]
    sizes = [
        _location_size(locations.mappings[row], lines)
        for row, (_, lines) in zip(locations.mapping.tolist(), names, strict=True)
    ]
    ends = np.cumsum(np.concatenate([np.array(sizes, np.int64), np.full(len(nodes.id), _NODE_BYTES)]))
    message_of = (ends - 1) // _BUDGET  # of each location, then of each node
    parts = int(message_of[-1]) + 1 if len(message_of) else 0
    messages = []
    for part in range(parts):
        rows = np.flatnonzero(message_of[: len(names)] == part)
        node_rows = np.flatnonzero(message_of[len(names) :] == part)
        message = StackBatch(published_unix_nano=published_unix_nano, seen_unix_nano=seen_unix_nano)
        if source is not None:
            message.source.CopyFrom(source)
            message.source.part, message.source.parts = part, parts
        columns = {
            "node_id": nodes.id[node_rows],
            "node_parent_id": nodes.parent_id[node_rows],
            "node_location_id": nodes.location_id[node_rows],
        }
        messages.append(packed.serialize(message, columns | _location_columns(message, locations, names, rows)))
    return messages


def _location_columns(
    message: StackBatch, locations: LocationColumns, names: Sequence[LocationNames], rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the columns of some locations and of their lines; adds their mappings and strings to the message."""
    mapping_rows, location_mapping = np.unique(locations.mapping[rows], return_inverse=True)
    message.mappings.extend(locations.mappings[row] for row in mapping_rows.tolist())
    row_names = [names[row] for row in rows.tolist()]
    lines = [line for _, lines in row_names for line in lines]
    strings = {"": 0}
    columns = {
        "location_id": locations.id[rows],
        "location_mapping": location_mapping,
        "location_address": locations.address[rows],
        "location_version": np.array([version for version, _ in row_names], np.uint64),
        "location_line_count": np.array([len(lines) for _, lines in row_names], np.uint32),
        "line_function": np.array([strings.setdefault(line.function, len(strings)) for line in lines], np.uint32),
        "line_file": np.array([strings.setdefault(line.file, len(strings)) for line in lines], np.uint32),
        "line_number": np.array([line.line for line in lines], np.uint32),
        "line_start_line": np.array([line.start_line for line in lines], np.uint32),
    }
    message.strings.extend(strings)
    return columns


def _within_limits(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(
        Line(
            line.function[:MAX_NAME],
            line.file[:MAX_NAME],
            min(line.line, MAX_LINE),
            min(line.start_line, MAX_LINE),
        )
        for line in lines[:MAX_LINES]
    )


def _location_size(mapping: Mapping, lines: Sequence[Line]) -> int:
    """Returns the bytes that a location takes at most: as if no other location shared its strings and its mapping."""
    size = _LOCATION_BYTES + len(mapping.build_id.encode()) + len(mapping.file.encode())
    return size + sum(_LINE_BYTES + len(line.function.encode()) + len(line.file.encode()) for line in lines)
