"""Functions that frames of a graph are about: interned, so that graphs are columns of numbers."""

import os.path
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.key_table import Rows

if TYPE_CHECKING:
    from api.locations import Locations

KINDS = ("icestream", "user", "kernel", "jit", "unknown")
_KIND_OF_MAPPING = {0: "unknown", 1: "user", 2: "kernel", 3: "kernel", 4: "jit"}  # icestream.v1.Mapping.Kind

UNNAMED = 1 << 30
"""Rows from here on are of frames without symbols: UNNAMED + row of the location. They are named only when shown."""


@dataclass(frozen=True, slots=True)
class Mapping:
    kind: int  # icestream.v1.Mapping.Kind
    build_id: str
    file: str


@dataclass(frozen=True, slots=True)
class Function:
    """`named`: symbols are there, else `name` is module+0xaddress. `line` is where it starts, 0: not known."""

    name: str
    module: str = ""
    file: str = ""
    line: int = 0
    kind: str = "icestream"
    named: bool = True


TOTAL, NO_STACK, UNRESOLVED, CUT = range(4)
_OWN = (Function("total"), Function("[no stack]"), Function("[unresolved stack]"), Function("[cut]"))


class Functions:
    """Functions of one name in one module (a file mapped, in whatever version) are one. For one thread at a time."""

    def __init__(self, locations: "Locations") -> None:
        self._locations = locations
        self._functions: list[Function] = list(_OWN)
        self._rows: dict[tuple[str, str, str], int] = {}
        self.mappings: list[Mapping] = []
        self._mapping_rows: dict[Mapping, int] = {}

    def __getitem__(self, row: int) -> Function:
        return self.unnamed(row - UNNAMED) if row >= UNNAMED else self._functions[row]

    def add_mappings(self, kinds: pa.ChunkedArray, build_ids: pa.ChunkedArray, files: pa.ChunkedArray) -> Rows:
        """Rows of `mappings`, one a row of the columns."""
        codes, firsts = _distinct(kinds.to_numpy(), _codes(build_ids), _codes(files))
        rows = np.empty(len(firsts), np.int32)
        for i, at in enumerate(firsts.tolist()):
            mapping = Mapping(kinds[at].as_py(), _text(build_ids[at]), _text(files[at]))
            row = self._mapping_rows.setdefault(mapping, len(self.mappings))
            if row == len(self.mappings):
                self.mappings.append(mapping)
            rows[i] = row
        return rows[codes]

    def add(
        self, names: pa.Array, mapping: Rows, location: Rows, sources: pa.Array, starts: npt.NDArray[np.uint32]
    ) -> Rows:
        """Rows of the functions of frames; of frames without a name, of their location's (row) instead."""
        codes, firsts = _distinct(_codes(names), mapping)
        rows = np.empty(len(firsts), np.int32)
        for i, at in enumerate(firsts.tolist()):
            module = self.mappings[mapping[at]]
            rows[i] = self._intern(_text(names[at]), module, _text(sources[at]), int(starts[at]))
        found = rows[codes]
        return np.where(found >= 0, found, UNNAMED + location).astype(np.int32)

    def _intern(self, name: str, mapping: Mapping, source: str, start: int) -> int:
        if not name:
            return -1
        kind = _KIND_OF_MAPPING.get(mapping.kind, "unknown")
        key = (name, mapping.file, kind)
        row = self._rows.setdefault(key, len(self._functions))
        if row == len(self._functions):
            self._functions.append(Function(name, mapping.file, source, start, kind))
        return row

    def unnamed(self, row: int) -> Function:
        """What stands for a location (row) without symbols."""
        at = int(self._locations.mapping[row])
        if at < 0:
            return Function(f"[unresolved location {int(self._locations.ids[row]):016x}]", named=False)
        mapping = self.mappings[at]
        name = f"{os.path.basename(mapping.file) or 'unknown'}+{int(self._locations.address[row]):#x}"
        return Function(name, mapping.file, kind=_KIND_OF_MAPPING.get(mapping.kind, "unknown"), named=False)


def _text(value: pa.BinaryScalar) -> str:
    text: str = value.as_py().decode(errors="replace")
    return text


def _codes(strings: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """A number for each string, equal where the strings are."""
    array = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    codes: npt.NDArray[np.int32] = array.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _distinct(*columns: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Distinct rows of parallel columns: which each row is, and where each occurs first."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, column_codes = np.unique(column, return_inverse=True)
        codes = codes * (int(column_codes.max(initial=0)) + 1) + column_codes
        _, codes = np.unique(codes, return_inverse=True)
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, firsts
