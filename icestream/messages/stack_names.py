"""Names for the stack IDs of icestream.samples, learned from icestream.stacks; for authors of consumers."""

import sys
from typing import NamedTuple

from icestream.messages.raw import MAX_DEPTH
from icestream.messages.stacks import StackColumns
from icestream.process.byte_cache import ByteCache

UNKNOWN = "[unknown]"
"""Stands for frames that were not announced yet, or are forgotten."""
LIMIT_BYTES = 1_000_000_000
_NODE_BYTES, _LOCATION_BYTES, _FRAME_BYTES = 64, 120, 130
"""What the objects of an entry take, beside texts."""


class Frame(NamedTuple):
    """One line of a location."""

    function: str
    module: str  # the path of the mapped file; "" where it is not known
    file: str  # the path of the source file; "" where it is not known


UNKNOWN_FRAME = Frame(UNKNOWN, "", "")


class StackNames:
    """The call tree and the names of its locations, as announced so far.

    A consumer that hands it all messages of icestream.stacks of two days can name every stack in use: about 260 bytes
    for a node and 450 for a location. Where they are more than `limit_bytes`, it forgets those first that were neither
    announced nor asked for longest. They are known again when they are announced the next time, the next day at latest
    if they are in use.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        # Node ID -> parent ID, location ID
        self._nodes = ByteCache[int, tuple[int, int]](limit_bytes // 2, lambda _, node: _NODE_BYTES)
        # Location ID -> version, frames, innermost first
        self._locations = ByteCache[int, tuple[int, list[Frame]]](limit_bytes // 2, _location_bytes)

    def learn(self, columns: StackColumns) -> None:
        """Learns an announcement (see `icestream.messages.stacks`), in any order and as often as it comes."""
        edges = zip(columns.node_parent_id.tolist(), columns.node_location_id.tolist(), strict=True)
        for node_id, edge in zip(columns.node_id.tolist(), edges, strict=True):
            self._nodes.put(node_id, edge)
        frames = _location_frames(columns)
        versions = zip(columns.location_id.tolist(), columns.location_version.tolist(), frames, strict=True)
        for location_id, version, of_location in versions:
            known = self._locations.get(location_id)
            if known is None or version >= known[0]:
                self._locations.put(location_id, (version, of_location))

    def frames(self, stack_id: int) -> list[str]:
        """Returns the functions of a stack, leaf first, inlined ones before the function they are in; [] if unknown.

        UNKNOWN stands where a location, or all callers from somewhere on, are not known.
        """
        return [frame.function for frame in self.stack(stack_id)]

    def stack(self, stack_id: int) -> list[Frame]:
        """Returns what `frames` does, with modules and files."""
        frames: list[Frame] = []
        is_known = False
        for _ in range(MAX_DEPTH):
            node = self._nodes.get(stack_id)
            location = self._locations.get(node[1]) if node else None
            frames += location[1] if location else [UNKNOWN_FRAME]
            is_known = is_known or location is not None
            if node is None or node[0] == 0:
                break
            stack_id = node[0]
        return frames if is_known else []

    def leaf(self, stack_id: int) -> str:
        """Returns the function that ran: the first of `frames`, or the stack ID in hex if it is unknown."""
        node = self._nodes.get(stack_id)
        location = self._locations.get(node[1]) if node else None
        return location[1][0].function if location else f"{stack_id:016x}" if stack_id else "[no stack]"


def _location_bytes(_: int, location: tuple[int, list[Frame]]) -> int:
    return _LOCATION_BYTES + sum(_FRAME_BYTES + len(frame.function) for frame in location[1])


def _location_frames(columns: StackColumns) -> list[list[Frame]]:
    """Returns the frames of each location; one without a name is called module+0xaddress."""
    strings = [sys.intern(text) for text in columns.strings]  # many locations have the same
    modules = [sys.intern(mapping.file) for mapping in columns.mappings]
    functions, files = columns.line_function.tolist(), columns.line_file.tolist()
    ends = columns.location_line_count.cumsum()
    starts = ends - columns.location_line_count
    location = columns.location_mapping.tolist(), columns.location_address.tolist()
    rows = zip(starts.tolist(), ends.tolist(), *location, strict=True)
    return [
        [Frame(strings[functions[line]], modules[mapping], strings[files[line]]) for line in range(start, end)]
        or [Frame(f"{modules[mapping].rpartition('/')[2] or UNKNOWN}+{address:#x}", modules[mapping], "")]
        for start, end, mapping, address in rows
    ]
