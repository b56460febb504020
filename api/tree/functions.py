"""Functions that frames of a graph are about: interned, so that graphs are columns of numbers."""

import os.path
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.queries.database import texts
from api.tree.hash_index import Rows

if TYPE_CHECKING:
    from api.tree.locations import Locations

KINDS = ("icestream", "user", "kernel", "jit", "unknown")
_KIND_OF_MAPPING = {0: "unknown", 1: "user", 2: "kernel", 3: "kernel", 4: "jit"}  # icestream.v1.Mapping.Kind

UNNAMED = 1 << 30
"""Rows from here on are of frames without symbols: UNNAMED + row of the location. They are named only when shown."""

TOTAL, NO_STACK, UNRESOLVED, CUT = range(4)
_OWN_NAMES = ("total", "[no stack]", "[unresolved stack]", "[cut]")


@dataclass(frozen=True, slots=True)
class Mapping:
    kind: int  # icestream.v1.Mapping.Kind
    build_id: str
    file: str

    @property
    def function_kind(self) -> str:
        return _KIND_OF_MAPPING.get(self.kind, "unknown")


@dataclass(frozen=True, slots=True)
class Function:
    """`named`: symbols are there, else `name` is module+0xaddress. `line` is where it starts, 0: not known."""

    name: str
    module: str = ""
    file: str = ""
    line: int = 0
    kind: str = "icestream"
    named: bool = True


OWN = tuple(Function(name) for name in _OWN_NAMES)


class Functions:
    """Functions of one name in one module (a file mapped, in whatever version) are one. For one thread at a time."""

    def __init__(self, locations: "Locations") -> None:
        self._locations = locations
        self._listed: list[tuple[str, int, str, int]] = [(name, -1, "", 0) for name in _OWN_NAMES]
        self._rows: dict[tuple[str, int], int] = {}
        self.mappings: list[Mapping] = []
        self._mapping_rows: dict[Mapping, int] = {}
        self._module_rows: dict[tuple[str, str], int] = {}  # file and kind -> the first mapping of these

    def __len__(self) -> int:
        """How many are named."""
        return len(self._listed)

    def __getitem__(self, row: int) -> Function:
        if row >= UNNAMED:
            return self.unnamed(row - UNNAMED)
        if row < len(OWN):
            return OWN[row]
        name, mapping, source, start = self._listed[row]
        module = self.mappings[mapping]
        return Function(name, module.file, source, start, module.function_kind)

    def unnamed(self, location: int) -> Function:
        """What stands for a location (row) without symbols."""
        at = int(self._locations.mapping[location])
        if at < 0:
            return Function(f"[unresolved location {int(self._locations.ids[location]):016x}]", named=False)
        mapping = self.mappings[at]
        address = int(self._locations.address[location])
        if not mapping.file and not address:  # no mapping covers it: the process is gone, or the walk has lost its way
            return Function("[unknown]", kind=mapping.function_kind, named=False)
        name = f"{os.path.basename(mapping.file) or 'unknown'}+{address:#x}"
        return Function(name, mapping.file, kind=mapping.function_kind, named=False)

    def add_mappings(self, kinds: pa.Array, build_ids: pa.Array, files: pa.Array) -> Rows:
        """Rows of `mappings`, one a row of the columns."""
        codes, firsts = _distinct(kinds.to_numpy(), _codes(build_ids), _codes(files))
        columns = (kinds.take(firsts).to_pylist(), texts(build_ids.take(firsts)), texts(files.take(firsts)))
        rows = []
        for kind, build_id, file in zip(*columns, strict=True):
            mapping = Mapping(kind, build_id, file)
            row = self._mapping_rows.setdefault(mapping, len(self.mappings))
            if row == len(self.mappings):
                self.mappings.append(mapping)
            rows.append(row)
        return np.array(rows, np.int32)[codes]

    def add(self, names: pa.Array, mapping: Rows, location: Rows, sources: pa.Array, starts: pa.Array) -> Rows:
        """Rows of the functions of frames; of frames without a name, of their location's (row) instead."""
        codes, firsts = _distinct(_codes(names), mapping)
        columns = (
            texts(names.take(firsts)),
            map(self._module, mapping[firsts].tolist()),
            texts(sources.take(firsts)),
            starts.take(firsts).to_pylist(),
        )
        rows = [self._intern(*function) if function[0] else -1 for function in zip(*columns, strict=True)]
        found = np.array(rows, np.int32)[codes]
        return np.where(found >= 0, found, UNNAMED + location).astype(np.int32)

    def _module(self, mapping: int) -> int:
        about = self.mappings[mapping]
        return self._module_rows.setdefault((about.file, about.function_kind), mapping)

    def _intern(self, name: str, module: int, source: str, start: int) -> int:
        row = self._rows.setdefault((name, module), len(self._listed))
        if row == len(self._listed):
            self._listed.append((name, module, source, start))
        return row


def _codes(strings: pa.Array) -> npt.NDArray[np.int32]:
    """A number for each string, equal where the strings are."""
    codes: npt.NDArray[np.int32] = strings.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _distinct(*columns: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Distinct rows of parallel columns of small numbers: which each row is, and where each occurs first."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, codes = np.unique(codes, return_inverse=True)
        codes = codes * (int(column.max(initial=0)) + 1) + column
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, firsts
