"""For authors of consumers: names for the stack IDs of icestream.samples, learned from icestream.stacks."""

from icestream.packed import column
from icestream.v1.stacks_pb2 import StackBatch

_MAX_DEPTH = 4096


class StackNames:
    """The call tree and the names of its locations, as announced so far.

    Whoever hands it every message of icestream.stacks of two days can name every live stack. It keeps what it learned:
    about 300 bytes a location and 150 a node.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[int, int]] = {}  # node -> parent, location
        self._locations: dict[int, tuple[int, list[str]]] = {}  # location -> version, names, innermost first

    def learn(self, batch: StackBatch) -> None:
        """Takes in an announcement, in any order and as often as it comes. Raises ValueError: it contradicts itself."""
        ids, parents, places = (column(batch, f"node_{name}").tolist() for name in ("id", "parent_id", "location_id"))
        found = dict(_named_locations(batch))
        self._nodes.update(zip(ids, zip(parents, places, strict=True), strict=True))
        for location, (version, names) in found.items():
            known = self._locations.get(location)
            if known is None or version >= known[0]:
                self._locations[location] = (version, names)

    def frames(self, stack: int) -> list[str]:
        """The functions of a stack, leaf first, inlined ones before the function they are in; [] when it is unknown."""
        frames: list[str] = []
        for _ in range(_MAX_DEPTH):
            parent, location = self._nodes.get(stack, (0, 0))
            frames += self._locations.get(location, (0, []))[1]
            if parent == 0:
                break
            stack = parent
        return frames

    def leaf(self, stack: int) -> str:
        """The function that ran: the first of `frames`, or the stack's ID in hex when it is unknown."""
        location = self._nodes.get(stack, (0, 0))[1]
        names = self._locations.get(location, (0, []))[1]
        return names[0] if names else f"{stack:016x}" if stack else "[no stack]"


def _named_locations(batch: StackBatch) -> list[tuple[int, tuple[int, list[str]]]]:
    """(location ID, (version, names)); a location without a name is called module+0xaddress."""
    fields = ("id", "mapping", "address", "version", "line_count")
    columns = [column(batch, f"location_{name}").tolist() for name in fields]
    functions = column(batch, "line_function").tolist()
    if any(function >= len(batch.strings) for function in functions):
        raise ValueError("a line's function is not in the batch's strings")
    if any(mapping >= len(batch.mappings) for mapping in columns[1]):
        raise ValueError("a location's mapping is not in the batch's mappings")
    if sum(columns[4]) != len(functions):
        raise ValueError(f"the locations have {sum(columns[4])} lines, but there are {len(functions)}")
    found = []
    first = 0
    for location, mapping, address, version, lines in zip(*columns, strict=True):
        names = [batch.strings[function] for function in functions[first : first + lines]]
        first += lines
        module = batch.mappings[mapping].file.rpartition("/")[2] or "[unknown]"
        found.append((location, (version, names or [f"{module}+{address:#x}"])))
    return found
