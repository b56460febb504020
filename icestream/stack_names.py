"""Names for the stack IDs of icestream.samples, learned from icestream.stacks; for authors of consumers."""

from icestream.messages.raw import MAX_DEPTH
from icestream.messages.stacks import StackColumns


class StackNames:
    """The call tree and the names of its locations, as announced so far.

    A consumer that hands it all messages of icestream.stacks of two days can name every stack in use. It keeps what it
    learned: about 300 bytes for a location and 150 for a node.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[int, int]] = {}  # node ID -> parent ID, location ID
        self._locations: dict[int, tuple[int, list[str]]] = {}  # location ID -> version, names, innermost first

    def learn(self, columns: StackColumns) -> None:
        """Learns an announcement (see `icestream.messages.stacks`), in any order and as often as it comes."""
        edges = zip(columns.node_parent_id.tolist(), columns.node_location_id.tolist(), strict=True)
        self._nodes.update(zip(columns.node_id.tolist(), edges, strict=True))
        names = _location_names(columns)
        versions = zip(columns.location_id.tolist(), columns.location_version.tolist(), names, strict=True)
        for location_id, version, functions in versions:
            known = self._locations.get(location_id)
            if known is None or version >= known[0]:
                self._locations[location_id] = (version, functions)

    def frames(self, stack_id: int) -> list[str]:
        """Returns the functions of a stack, leaf first, inlined ones before the function they are in; [] if unknown."""
        frames: list[str] = []
        for _ in range(MAX_DEPTH):
            parent_id, location_id = self._nodes.get(stack_id, (0, 0))
            frames += self._locations.get(location_id, (0, []))[1]
            if parent_id == 0:
                break
            stack_id = parent_id
        return frames

    def leaf(self, stack_id: int) -> str:
        """Returns the function that ran: the first of `frames`, or the stack ID in hex if it is unknown."""
        location_id = self._nodes.get(stack_id, (0, 0))[1]
        names = self._locations.get(location_id, (0, []))[1]
        return names[0] if names else f"{stack_id:016x}" if stack_id else "[no stack]"


def _location_names(columns: StackColumns) -> list[list[str]]:
    """Returns the functions of each location; a location without a name is called module+0xaddress."""
    functions = [columns.strings[row] for row in columns.line_function.tolist()]
    modules = [mapping.file.rpartition("/")[2] or "[unknown]" for mapping in columns.mappings]
    ends = columns.location_line_count.cumsum().tolist()
    starts = [0, *ends[:-1]]
    rows = zip(starts, ends, columns.location_mapping.tolist(), columns.location_address.tolist(), strict=True)
    return [functions[start:end] or [f"{modules[mapping]}+{address:#x}"] for start, end, mapping, address in rows]
