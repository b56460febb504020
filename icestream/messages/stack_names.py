"""Names for the stack IDs of icestream.samples, learned from icestream.stacks; for authors of consumers."""

from icestream.messages.raw import MAX_DEPTH
from icestream.messages.stacks import StackColumns
from icestream.process.byte_cache import ByteCache

UNKNOWN = "[unknown]"
"""Stands for frames that were not announced yet, or are forgotten."""
LIMIT_BYTES = 1_000_000_000
_NODE_BYTES, _LOCATION_BYTES, _FUNCTION_BYTES = 64, 120, 60
"""What the objects of an entry take, beside texts."""


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
        # Location ID -> version, names, innermost first
        self._locations = ByteCache[int, tuple[int, list[str]]](limit_bytes // 2, _location_bytes)

    def learn(self, columns: StackColumns) -> None:
        """Learns an announcement (see `icestream.messages.stacks`), in any order and as often as it comes."""
        edges = zip(columns.node_parent_id.tolist(), columns.node_location_id.tolist(), strict=True)
        for node_id, edge in zip(columns.node_id.tolist(), edges, strict=True):
            self._nodes.put(node_id, edge)
        names = _location_names(columns)
        versions = zip(columns.location_id.tolist(), columns.location_version.tolist(), names, strict=True)
        for location_id, version, functions in versions:
            known = self._locations.get(location_id)
            if known is None or version >= known[0]:
                self._locations.put(location_id, (version, functions))

    def frames(self, stack_id: int) -> list[str]:
        """Returns the functions of a stack, leaf first, inlined ones before the function they are in; [] if unknown.

        UNKNOWN stands where a location, or all callers from somewhere on, are not known.
        """
        frames: list[str] = []
        is_known = False
        for _ in range(MAX_DEPTH):
            node = self._nodes.get(stack_id)
            location = self._locations.get(node[1]) if node else None
            frames += location[1] if location else [UNKNOWN]
            is_known = is_known or location is not None
            if node is None or node[0] == 0:
                break
            stack_id = node[0]
        return frames if is_known else []

    def leaf(self, stack_id: int) -> str:
        """Returns the function that ran: the first of `frames`, or the stack ID in hex if it is unknown."""
        node = self._nodes.get(stack_id)
        location = self._locations.get(node[1]) if node else None
        return location[1][0] if location else f"{stack_id:016x}" if stack_id else "[no stack]"


def _location_bytes(_: int, location: tuple[int, list[str]]) -> int:
    return _LOCATION_BYTES + sum(_FUNCTION_BYTES + len(function) for function in location[1])


def _location_names(columns: StackColumns) -> list[list[str]]:
    """Returns the functions of each location; a location without a name is called module+0xaddress."""
    functions = [columns.strings[row] for row in columns.line_function.tolist()]
    modules = [mapping.file.rpartition("/")[2] or "[unknown]" for mapping in columns.mappings]
    ends = columns.location_line_count.cumsum().tolist()
    starts = [0, *ends[:-1]]
    rows = zip(starts, ends, columns.location_mapping.tolist(), columns.location_address.tolist(), strict=True)
    return [functions[start:end] or [f"{modules[mapping]}+{address:#x}"] for start, end, mapping, address in rows]
