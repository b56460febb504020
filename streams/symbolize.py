"""Names locations: by the host's names, else from SymCaches. Asks for missing symbol files."""

from collections.abc import Callable

import numpy as np

from icestream.byte_cache import ByteCache
from icestream.messages.raw import RawColumns
from icestream.messages.stack_encoder import MAX_LINES, LocationNames
from icestream.symcache import Line, SymCaches
from icestream.v1.common_pb2 import Mapping
from streams import metrics

NAMED_VERSION = 1
"""Version of names that the host gave."""
CACHED_BYTES = 64_000_000
"""Limit of the names that are remembered: about 100,000 locations."""
_LINE_BYTES = 200

Want = Callable[[str, str, str], None]
"""Called with (build ID, host ID, file) when symbols are missing."""

UNNAMED = LocationNames(0, ())


class Symbolizer:
    """Names the locations of all partitions of a worker. Its only state is a cache."""

    def __init__(self, symcaches: SymCaches | None, want: Want = lambda build_id, host_id, file: None) -> None:
        """`symcaches`: None if there are none."""
        self._symcaches = symcaches
        self._want = want
        self._cache: ByteCache[int, LocationNames] = ByteCache(CACHED_BYTES, _size)

    def names(self, raw: RawColumns, rows: np.ndarray, location_id: np.ndarray) -> list[LocationNames]:
        """Returns the names of some locations of a batch, in the order of `rows`."""
        return [
            self._name(raw, row, location)
            for row, location in zip(rows.tolist(), location_id[rows].tolist(), strict=True)
        ]

    def _name(self, raw: RawColumns, row: int, location_id: int) -> LocationNames:
        mapping = raw.mappings[raw.location_mapping[row]]
        if mapping.kind == Mapping.NAMED:
            function, file = raw.strings[raw.location_function[row]], raw.strings[raw.location_file[row]]
            line = Line(function, file, int(raw.location_line[row]), 0)
            return LocationNames(NAMED_VERSION, (line,)) if function else UNNAMED
        if self._symcaches is None or mapping.kind == Mapping.UNKNOWN or not mapping.build_id:
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
        named = self._lookup(mapping, int(raw.location_address[row]))
        self._cache.put(location_id, named)
        return named

    def _lookup(self, mapping: Mapping, address: int) -> LocationNames:
        symbols = self._symcaches.get(mapping.build_id) if self._symcaches else None
        if symbols is None:
            return UNNAMED
        metrics.LOCATIONS.labels("looked up").inc()
        lines = tuple(symbols.lookup(address, mapping.file)[:MAX_LINES])
        return LocationNames(symbols.version, lines) if lines else UNNAMED


def _size(location_id: int, names: LocationNames) -> int:
    return sum(_LINE_BYTES + len(line.function) + len(line.file) for line in names.lines)
