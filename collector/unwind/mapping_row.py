"""Rows of the map of mappings: where the kernel finds the unwinding table of the code at an address."""

from typing import NamedTuple

from collector.processes.mapped_ranges import MappedRange
from collector.unwind.maps import FRAME_POINTERS

_MASK = (1 << 64) - 1


class Place(NamedTuple):
    """Where the table of a file is in the maps. Without a table, `first_chunk` says what is known of the file."""

    base: int | None
    first_chunk: int
    chunks: int


def mapping_row(mapped_range: MappedRange, place: Place) -> tuple[int, int, int, int, int]:
    """Returns the fields of a MAPPING."""
    if place.base is not None:
        bias = mapped_range.bias - place.base & _MASK
        return mapped_range.start, mapped_range.end, bias, place.first_chunk, place.chunks
    first_chunk = FRAME_POINTERS if mapped_range.anonymous else place.first_chunk
    return mapped_range.start, mapped_range.end, 0, first_chunk, 0
