"""Makes the locations of a pprof profile into the distinct locations of messages, all at once: those with distinct IDs.

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
from icestream.columns.row_indices import distinct
from icestream.messages import identify
from icestream.messages.raw import StackFrames
from icestream.messages.raw_encoder import SentLines, to_mapping

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
    location_id = _location_ids(placed, lines, functions, first_line)
    first, row = distinct(location_id)
    named = np.flatnonzero(placed.is_named[first])
    name = np.zeros(len(first), np.int64)
    name[named] = np.arange(1, len(named) + 1)
    count = np.where(placed.is_named[first], 0, lines.count[first])
    kept = index_ranges.expand(first_line[first], count)
    locations = ProfileLocations(
        mapping=placed.mapping[first],
        address=placed.address[first],
        name=name,
        mappings=placed.mappings,
        names=[NO_NAME, *_names(functions, lines, first_line[first[named]])],
        lines=_sent_lines(functions, lines, count, kept) if len(kept) else None,
        ids=location_id[first],
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


def _location_ids(placed: _Placed, lines: PprofLines, functions: PprofFunctions, first_line: np.ndarray) -> np.ndarray:
    name, file, number = np.zeros((3, len(placed.mapping)), np.int64)
    named, name_lines = placed.is_named, first_line[placed.is_named]
    name[named], file[named] = functions.name[lines.function[name_lines]], functions.file[lines.function[name_lines]]
    number[named] = lines.number[name_lines]
    others = np.flatnonzero(~np.repeat(named, lines.count))
    function = lines.function[others]
    none = np.empty(0, np.int64)
    columns = StackFrames(
        strings=functions.texts,
        mappings=list(map(to_mapping, placed.mappings)),
        location_mapping=placed.mapping,
        location_address=placed.address,
        location_function=name,
        location_file=file,
        location_line=number,
        location_line_count=np.where(named, 0, lines.count),
        line_function=functions.name[function],
        line_file=functions.file[function],
        line_number=lines.number[others],
        line_start_line=functions.start_line[function],
        stack_depth=none,
        stack_frames=none,
        stack_id=none,
    )
    return identify.location_ids(columns, np.arange(len(placed.mapping)))


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
