"""What a frame of a graph shows: its function, or `module+0xaddress` if its location has no symbols."""

from api.tree.functions import Function, Functions
from api.tree.locations import Locations
from api.tree.mappings import Mappings
from icestream.unnamed import unnamed

UNNAMED = 1 << 30
"""Rows from here on are frames without symbols: UNNAMED + row of the location. They get a name only when shown."""


class FrameFunctions:
    """Functions by row, of frames with and without symbols."""

    def __init__(self, functions: Functions, locations: Locations, mappings: Mappings) -> None:
        self._functions = functions
        self._locations = locations
        self._mappings = mappings

    def __getitem__(self, row: int) -> Function:
        return self.unnamed(row - UNNAMED) if row >= UNNAMED else self._functions[row]

    def unnamed(self, location: int) -> Function:
        """What stands for a location (row) without symbols."""
        mapping_row = int(self._locations.mapping[location])
        if mapping_row < 0:
            return Function(f"[unresolved location {int(self._locations.ids[location]):016x}]", named=False)
        mapping = self._mappings[mapping_row]
        address = int(self._locations.address[location])
        # No mapping covered the address: the process had ended, or the stack walk was wrong.
        if not mapping.file and not address:
            return Function("[unknown]", kind=mapping.function_kind, named=False)
        return Function(unnamed(mapping.file, address), mapping.file, kind=mapping.function_kind, named=False)
