"""Makes the locations of a pprof profile into the distinct locations of messages, all at once.

`location_table.LocationTable` does the same one by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gateway.errors import bad_profile
from gateway.readers.location_table import (
    LOW_MEMORY,
    NO_NAME,
    UNKNOWN,
    MappingKey,
    ProfileLocations,
    SentLine,
    file_mappings,
)
from gateway.readers.pprof_tables import ById, LocationIds, PprofFunctions, PprofLines, PprofMapping
from icestream.columns import index_ranges
from icestream.messages.raw_encoder import SentLines

NO_MAPPING = PprofMapping(0, "", "", 0, 0)


class _Placed(NamedTuple):
    """l locations, before equal ones are joined."""

    mapping: np.ndarray  # int64 (l,), row of mappings
    address: np.ndarray  # uint64 (l,)
    is_named: np.ndarray  # bool (l,): its only line is its name
    mappings: list[MappingKey]


def distinct_locations(
    of: LocationIds, lines: PprofLines, functions: PprofFunctions, mappings: Sequence[PprofMapping]
) -> tuple[ProfileLocations, np.ndarray]:
    """Returns the distinct locations, and the row among these of each given one. Raises Refused."""
    first_line = index_ranges.starts(lines.count)
    placed = _place(of, lines, functions, [*mappings, NO_MAPPING], first_line)
    line = _numbered(lines.function, lines.number) + 1
    count = np.where(placed.is_named, 0, lines.count)
    name = np.zeros(len(count), np.int64)
    name_lines = first_line[placed.is_named]
    _, of_name, row_of_name = np.unique(line[name_lines], return_index=True, return_inverse=True)
    name[placed.is_named] = row_of_name + 1

    group = _numbered(_numbered(placed.mapping, name), np.unique(placed.address, return_inverse=True)[1])
    for level in range(int(count.max(initial=0))):
        rows = np.flatnonzero(count > level)
        line_of = np.zeros(len(count), np.int64)
        line_of[rows] = line[first_line[rows] + level]
        group = _numbered(group, line_of)
    _, first, row = np.unique(group, return_index=True, return_inverse=True)

    kept = index_ranges.expand(first_line[first], count[first])
    locations = ProfileLocations(
        mapping=placed.mapping[first],
        address=placed.address[first],
        name=name[first],
        mappings=placed.mappings,
        names=[NO_NAME, *_names(functions, lines, name_lines[of_name])],
        lines=_sent_lines(functions, lines, count[first], kept) if len(kept) else None,
    )
    return locations, row


def _place(
    of: LocationIds,
    lines: PprofLines,
    functions: PprofFunctions,
    mappings: Sequence[PprofMapping],
    first_line: np.ndarray,
) -> _Placed:
    """If several mappings have one ID, the last one counts. Raises Refused."""
    try:
        of_mapping = ById(np.array([mapping.id for mapping in mappings], np.uint64)).rows(of.mapping_id)
    except KeyError as error:
        raise bad_profile(f"location.mapping_id: there is no mapping {error}") from None
    of_files = [file_mappings(mapping.build_id, mapping.file) for mapping in mappings]
    table: dict[MappingKey, int] = {UNKNOWN: 0}

    def rows(keys: Sequence[MappingKey]) -> np.ndarray:
        """Returns the row in the table for each location, by its mapping."""
        found: np.ndarray = np.array([table.setdefault(key, len(table)) for key in keys], np.int64)[of_mapping]
        return found

    def flags(values: Sequence[bool]) -> np.ndarray:
        found: np.ndarray = np.array(values, bool)[of_mapping]
        return found

    has_lines = lines.count > 0
    is_named = (lines.count == 1) & flags([of_file.named is not None for of_file in of_files])
    is_named[is_named] = functions.start_line[lines.function[first_line[is_named]]] == 0
    unnamed, lined = rows([of_file.unnamed for of_file in of_files]), rows([of_file.lined for of_file in of_files])
    named = rows([of_file.named or of_file.lined for of_file in of_files])
    address = _file_addresses(of.address, of_mapping, mappings)
    address[is_named | (has_lines & ~flags([of_file.keeps_address for of_file in of_files]))] = 0
    return _Placed(np.where(is_named, named, np.where(has_lines, lined, unnamed)), address, is_named, list(table))


def _file_addresses(address: np.ndarray, of_mapping: np.ndarray, mappings: Sequence[PprofMapping]) -> np.ndarray:
    """Returns ELF virtual addresses, as `location_table.file_address` does."""
    start = np.array([mapping.memory_start for mapping in mappings], np.uint64)[of_mapping]
    offset = np.array([mapping.file_offset for mapping in mappings], np.uint64)[of_mapping]
    return np.where(start < LOW_MEMORY, address, address - start + offset)


def _numbered(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns a number for each pair of numbers below 2^31, the same for equal pairs: int64."""
    number: np.ndarray = np.unique(first << 32 | second, return_inverse=True)[1]
    return number


def _names(functions: PprofFunctions, lines: PprofLines, rows: np.ndarray) -> list[SentLine]:
    """Returns some lines, whose functions have no first lines."""
    function = lines.function[rows]
    texts = functions.texts
    columns = (functions.name[function], functions.file[function], lines.number[rows])
    return [
        SentLine(texts[name], texts[file], number, 0)
        for name, file, number in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _sent_lines(functions: PprofFunctions, lines: PprofLines, count: np.ndarray, rows: np.ndarray) -> SentLines:
    """`count`: of each location; `rows`: its lines, location after location."""
    function = lines.function[rows]
    return SentLines(
        count=count,
        function=functions.name[function],
        file=functions.file[function],
        number=lines.number[rows],
        start_line=functions.start_line[function],
        texts=functions.texts,
    )
