"""Names of locations: from the host for those it named, else from SymCaches; asks for those nobody has sent."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from icestream.symcache import Line, SymCaches
from icestream.v1.common_pb2 import Mapping
from streams import metrics
from streams.columns import RawColumns

NAMED_VERSION = 1
"""Version of lines that the host gave: nobody knows better."""
MAX_NAME = 1024
"""Longer names and paths are cut."""
MAX_INLINED = 32
"""More lines of one location are left out, the outermost ones."""
CACHED_LOCATIONS = 200_000


class Named(NamedTuple):
    version: int  # 0: not named
    lines: tuple[Line, ...]  # innermost (inlined) first


Want = Callable[[str, str, str], None]
"""Called with (build ID, host ID, file) of a file whose names are missing."""

UNNAMED = Named(0, ())


class Symbolizer:
    """Names locations. One for all partitions of a worker; what it remembers is a cache."""

    def __init__(self, symcaches: SymCaches | None, want: Want = lambda build_id, host_id, file: None) -> None:
        """`symcaches`: None where there are none to look into."""
        self._symcaches = symcaches
        self._want = want
        self._cache: dict[int, Named] = {}

    def names(self, raw: RawColumns, rows: np.ndarray, location_id: np.ndarray) -> list[Named]:
        """Names of some locations of a batch, in the order of `rows`."""
        return [
            self._name(raw, row, location)
            for row, location in zip(rows.tolist(), location_id[rows].tolist(), strict=True)
        ]

    def _name(self, raw: RawColumns, row: int, location_id: int) -> Named:
        mapping = raw.mappings[raw.location_mapping[row]]
        if mapping.kind == Mapping.NAMED:
            function = raw.strings[raw.location_function[row]][:MAX_NAME]
            file = raw.strings[raw.location_file[row]][:MAX_NAME]
            return (
                Named(NAMED_VERSION, (Line(function, file, int(raw.location_line[row]), 0),)) if function else UNNAMED
            )
        if self._symcaches is None or mapping.kind == Mapping.UNKNOWN or not mapping.build_id:
            return UNNAMED
        version = self._symcaches.version(mapping.build_id)
        if not version:
            metrics.SYMBOLS_MISSING.inc()
            self._want(mapping.build_id, raw.host_id, mapping.file)
            return UNNAMED
        known = self._cache.get(location_id)
        # One that had no name keeps version 0; it is looked up again, as a newer SymCache may have it.
        if known is not None and known.version == version:
            metrics.LOCATIONS.labels("cached").inc()
            return known
        named = self._lookup(mapping.build_id, int(raw.location_address[row]))
        if len(self._cache) >= CACHED_LOCATIONS:
            self._cache.clear()
        self._cache[location_id] = named
        return named

    def _lookup(self, build_id: str, address: int) -> Named:
        symbols = self._symcaches.get(build_id) if self._symcaches else None
        if symbols is None:
            return UNNAMED
        metrics.LOCATIONS.labels("looked up").inc()
        lines = tuple(_cut(line) for line in symbols.lookup(address)[:MAX_INLINED])
        return Named(symbols.version, lines) if lines else UNNAMED


def _cut(line: Line) -> Line:
    return Line(line.function[:MAX_NAME], line.file[:MAX_NAME], line.line, line.start_line)
