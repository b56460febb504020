"""What a frame of a graph shows: its function, or that there are no symbols for its location."""

import numpy as np

from api.array_types import Rows
from api.tree.functions import Function, Functions
from api.tree.locations import Locations
from api.tree.mappings import Mappings
from icestream.symbols.unnamed import unnamed, unnamed_code

UNNAMED = 1 << 30
"""Rows from here on are frames without symbols: UNNAMED + row of the location. They get a name only when shown."""
UNNAMED_CODE = 1 << 29
"""Rows from here to UNNAMED are all code without symbols of a module: UNNAMED_CODE + row of its mapping."""


class FrameFunctions:
    """Functions by row, of frames with and without symbols."""

    def __init__(self, functions: Functions, locations: Locations, mappings: Mappings) -> None:
        self._functions = functions
        self._locations = locations
        self._mappings = mappings

    def __getitem__(self, row: int) -> Function:
        if row >= UNNAMED:
            return self.unnamed(row - UNNAMED)
        return self._unnamed_code(row - UNNAMED_CODE) if row >= UNNAMED_CODE else self._functions[row]

    def without_addresses(self, rows: Rows) -> Rows:
        """These rows, with one for all code without symbols of a module in place of one for each of its locations."""
        is_location = rows >= UNNAMED
        if not is_location.any():
            return rows
        mapping, index = np.unique(self._locations.mapping[rows[is_location] - UNNAMED], return_inverse=True)
        code = np.array([UNNAMED_CODE + self._mappings.module(row) if row >= 0 else -1 for row in mapping.tolist()])
        joined = rows.copy()
        joined[is_location] = np.where(mapping[index] >= 0, code[index], rows[is_location])
        return joined

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

    def _unnamed_code(self, mapping_row: int) -> Function:
        mapping = self._mappings[mapping_row]
        return Function(unnamed_code(mapping.file), mapping.file, kind=mapping.function_kind, named=False)
