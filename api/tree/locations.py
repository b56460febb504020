"""Locations and their frames as columns."""

import numpy as np
import numpy.typing as npt

from api.array_types import Ids, Rows
from api.tree.growable_column import GrowableColumn
from api.tree.hash_index import HashIndex

_NOT_STORED = -1


class Locations:
    """One row for each location. For one thread at a time.

    Row r has the frames first_frame[r] to first_frame[r] + frame_count[r] (exclusive) of the frame columns, the
    innermost (inlined) first. It has none if there are no symbols.
    """

    def __init__(self) -> None:
        self._index = HashIndex()
        self._version = GrowableColumn(np.uint64)
        self._first_frame = GrowableColumn(np.int64)
        self._frame_count = GrowableColumn(np.int32)
        self._mapping = GrowableColumn(np.int32)
        self._address = GrowableColumn(np.uint64)
        self._frame_function = GrowableColumn(np.int32)
        self._frame_line = GrowableColumn(np.uint32)
        self._frame_start_line = GrowableColumn(np.uint32)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def ids(self) -> Ids:
        return self._index.keys

    @property
    def version(self) -> Ids:
        """The version of the lines: a higher one is better."""
        return self._version.values

    @property
    def first_frame(self) -> npt.NDArray[np.int64]:
        return self._first_frame.values

    @property
    def frame_count(self) -> Rows:
        return self._frame_count.values

    @property
    def mapping(self) -> Rows:
        """Rows of Mappings; -1 if nothing was stored for the location yet."""
        return self._mapping.values

    @property
    def address(self) -> npt.NDArray[np.uint64]:
        return self._address.values

    @property
    def frame_function(self) -> Rows:
        """Rows of FrameFunctions, for each frame."""
        return self._frame_function.values

    @property
    def frame_line(self) -> npt.NDArray[np.uint32]:
        """Line numbers, for each frame."""
        return self._frame_line.values

    @property
    def frame_start_line(self) -> npt.NDArray[np.uint32]:
        """Where the function of each frame starts in the build that the frame is of, 0 if unknown."""
        return self._frame_start_line.values

    @property
    def is_missing(self) -> npt.NDArray[np.bool_]:
        """Whether nothing was stored for the location yet."""
        is_missing: npt.NDArray[np.bool_] = self.mapping == _NOT_STORED
        return is_missing

    def find(self, ids: Ids) -> Rows:
        """Rows of locations, -1 for those that were not added."""
        return self._index.find(ids)

    def add(self, ids: Ids) -> Rows:
        """Rows of locations, after adding those that are new, with nothing stored for them."""
        rows = self._index.add(ids)
        new = np.zeros(len(self._index) - len(self._version))
        for column in (self._version, self._first_frame, self._frame_count, self._address):
            column.extend(new)
        self._mapping.extend(new + _NOT_STORED)
        return rows

    def append_frames(self, function: Rows, line: npt.NDArray[np.uint32], start_line: npt.NDArray[np.uint32]) -> None:
        """Appends to the frame columns; `store` then says which frames are whose."""
        self._frame_function.extend(function)
        self._frame_line.extend(line)
        self._frame_start_line.extend(start_line)

    def store(self, rows: Rows, version: Ids, mapping: Rows, address: Ids, frame_count: Rows) -> None:
        """Replaces what is stored for `rows`. Their frames are the last ones appended, in the order of `rows`."""
        end = np.cumsum(frame_count)
        frames = int(end[-1]) if len(end) else 0
        self._version.values[rows] = version
        self._first_frame.values[rows] = len(self._frame_function) - frames + end - frame_count
        self._frame_count.values[rows] = frame_count
        self._mapping.values[rows] = mapping
        self._address.values[rows] = address
