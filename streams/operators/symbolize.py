"""Names locations: as the host or a profile's sender does, else from SymCaches. Asks for missing symbol files."""

from collections.abc import Callable
from itertools import islice

import numpy as np

from icestream.columns import index_ranges
from icestream.messages.checks import MAX_LINES
from icestream.messages.raw import RawColumns
from icestream.messages.stack_encoder import LocationNames
from icestream.process.byte_cache import ByteCache
from icestream.symbols.line import Line
from icestream.symbols.symcache import Symbols, SymCaches
from icestream.v1.common_pb2 import Mapping
from streams import metrics

NAMED_VERSION = 1
"""Version of names that the host, or the sender of a profile, gave."""
CACHED_BYTES = 64_000_000
"""Limit of the names that are remembered: about 100,000 locations."""
_LINE_BYTES = 200

Late = Callable[[Mapping, int, int, int], None]
"""Called with (mapping, location ID, address, Unix time in ns) when a symbol file has not come yet."""
Want = Callable[[str, str, str], None]
"""Called with (build ID, host ID, file) when symbols are missing."""

UNNAMED = LocationNames(0, ())
_UNREADABLE = (Mapping.UNKNOWN, Mapping.SENT)
"""Kinds of mappings whose addresses no SymCache can name."""


class Symbolizer:
    """Names the locations of all partitions of a worker. Its only state is a cache."""

    def __init__(
        self,
        symcaches: SymCaches | None,
        want: Want = lambda build_id, host_id, file: None,
        late: Late = lambda mapping, location_id, address, seen_unix_nano: None,
    ) -> None:
        """`symcaches`: None if there are none."""
        self._symcaches = symcaches
        self._want = want
        self._late = late
        self._cache: ByteCache[int, LocationNames] = ByteCache(CACHED_BYTES, _size)

    def names(self, raw: RawColumns, rows: np.ndarray, location_id: np.ndarray) -> list[LocationNames]:
        """Returns the names of some locations of a batch, in the order of `rows`, whose IDs are given."""
        sent = _sent_names(raw, rows) if len(raw.line_function) else {}
        return [
            sent.get(row) or self._name(raw, row, location)
            for row, location in zip(rows.tolist(), location_id.tolist(), strict=True)
        ]

    def _name(self, raw: RawColumns, row: int, location_id: int) -> LocationNames:
        mapping = raw.mappings[raw.location_mapping[row]]
        if mapping.kind == Mapping.NAMED:
            function, file = raw.strings[raw.location_function[row]], raw.strings[raw.location_file[row]]
            line = Line(function, file, int(raw.location_line[row]), 0)
            return LocationNames(NAMED_VERSION, (line,)) if function else UNNAMED
        if self._symcaches is None or mapping.kind in _UNREADABLE or not mapping.build_id:
            return UNNAMED
        version = self._symcaches.version(mapping.build_id)
        if not version:
            metrics.SYMBOLS_MISSING.inc()
            self._want(mapping.build_id, raw.host_id, mapping.file)
            return UNNAMED
        known = self._cache.get(location_id)
        # A location without a name has version 0, so it is looked up again: a newer SymCache may name it.
        if known is not None and known.version == version:
            metrics.LOCATIONS.labels("cached").inc()
            return known
        address = int(raw.location_address[row])
        symbols = self._symcaches.get(mapping.build_id)
        if symbols is None:
            metrics.SYMBOLS_MISSING.inc()
            self._late(mapping, location_id, address, raw.start_unix_nano)
            return known or UNNAMED
        metrics.LOCATIONS.labels("looked up").inc()
        named = names_of(symbols, address, mapping.file)
        self._cache.put(location_id, named)
        return named


def names_of(symbols: Symbols, address: int, file: str) -> LocationNames:
    """Returns the names of an address of a file."""
    lines = tuple(symbols.lookup(address, file)[:MAX_LINES])
    return LocationNames(symbols.version, lines) if lines else UNNAMED


def _sent_names(raw: RawColumns, rows: np.ndarray) -> dict[int, LocationNames]:
    """Returns the lines that the sender gave to some locations, by row."""
    counts = raw.location_line_count[rows]
    lines = index_ranges.rows_of(rows, raw.location_line_count)
    columns = (raw.line_function, raw.line_file, raw.line_number, raw.line_start_line)
    made = iter(
        [
            Line(raw.strings[function], raw.strings[file], number, start_line)
            for function, file, number, start_line in zip(*(c[lines].tolist() for c in columns), strict=True)
        ]
    )
    named = {row: tuple(islice(made, count)) for row, count in zip(rows.tolist(), counts.tolist(), strict=True)}
    return {row: LocationNames(NAMED_VERSION, given) for row, given in named.items() if given}


def _size(location_id: int, names: LocationNames) -> int:
    return sum(_LINE_BYTES + len(line.function) + len(line.file) for line in names.lines)
