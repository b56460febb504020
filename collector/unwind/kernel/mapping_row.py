"""Rows of the map of mappings: where the kernel finds the unwinding table of the code at an address."""

from typing import NamedTuple

from collector.processes.mapped_files import UPROBES
from collector.processes.mapped_ranges import MappedRange
from collector.unwind.kernel.maps import FRAME_POINTERS, RETURN_PROBES, UNWALKABLE_CODE

_MASK = (1 << 64) - 1


class Place(NamedTuple):
    """Where the table of a file is in the maps. Without a table, `table` says what is known of the file."""

    base: int | None
    table: int  # as in a MAPPING


def generated_code(unwalkable: int | None) -> int:
    """Returns the `table` of generated code of a process. `unwalkable`: see Found."""
    return FRAME_POINTERS if unwalkable is None else UNWALKABLE_CODE + unwalkable


def mapping_row(mapped_range: MappedRange, place: Place, generated: int = FRAME_POINTERS) -> tuple[int, int, int, int]:
    """Returns the fields of a MAPPING. `generated` is the `table` of generated code."""
    if place.base is not None:
        return mapped_range.start, mapped_range.end, mapped_range.bias - place.base & _MASK, place.table
    if mapped_range.file.file == UPROBES and mapped_range.entry is None:
        # Return addresses are looked up one byte before, and this one is the first of its page.
        return mapped_range.start - 1, mapped_range.end, 0, RETURN_PROBES
    return mapped_range.start, mapped_range.end, 0, generated if mapped_range.anonymous else place.table
