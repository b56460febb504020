"""What a sink remembers of what it has done, in bounded memory: it forgets what was used least recently."""

from collections.abc import Iterable

import numpy as np

from icestream.process.byte_cache import ByteCache

Days = dict[int, int]
_ARRAY_BYTES = 200
"""About what an array takes beside its elements."""


class SeriesDays:
    """The day on which each series was last written.

    Two dictionaries take turns, each of at most `limit` series of about 80 bytes. Series that are used move to the
    newer one. When that is full, the older one is forgotten.
    """

    def __init__(self, limit: int = 500_000) -> None:
        self._limit = limit
        self._newer: Days = {}
        self._older: Days = {}

    def written(self, series_id: int, day: int) -> bool:
        """Returns whether the series was written on that day or later."""
        last = self._newer.get(series_id)
        if last is None and (last := self._older.get(series_id)) is not None:
            self.add((series_id,), last)
        return last is not None and last >= day

    def add(self, series_ids: Iterable[int], day: int) -> None:
        """Remembers that these series were written."""
        for series_id in series_ids:
            if len(self._newer) >= self._limit and series_id not in self._newer:
                self._newer, self._older = {}, self._newer
            self._newer[series_id] = day

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)


class TriedLocations:
    """Locations that were looked up, by the build ID and the version of the names, in a bounded number of bytes."""

    def __init__(self, limit_bytes: int = 32_000_000) -> None:
        self._tried: ByteCache[str, tuple[int, np.ndarray]] = ByteCache(
            limit_bytes, lambda build_id, tried: len(build_id) + tried[1].nbytes + _ARRAY_BYTES
        )

    def untried(self, build_id: str, version: int, location_ids: np.ndarray) -> np.ndarray:
        """Returns which of the locations, uint64 (n,), were not looked up in this version: bool (n,)."""
        known, tried = self._tried.get(build_id) or (0, location_ids[:0])
        return np.isin(location_ids, tried, invert=True) if known == version else np.ones(len(location_ids), bool)

    def add(self, build_id: str, version: int, location_ids: np.ndarray) -> None:
        """Remembers locations, uint64 (n,). Beyond the limit, forgets build IDs that were used least recently."""
        known, tried = self._tried.get(build_id) or (0, location_ids[:0])
        self._tried.put(build_id, (version, np.union1d(tried, location_ids) if known == version else location_ids))
