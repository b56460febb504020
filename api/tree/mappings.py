"""Mappings of locations, each kept once."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from api.array_types import Rows
from api.queries.database import texts
from api.tree.distinct import distinct_rows, text_codes
from icestream.unnamed import TRUNCATED

_FUNCTION_KINDS = {
    0: "unknown",
    1: "user",
    2: "kernel",
    3: "kernel",
    4: "jit",
    5: "user",
}  # by icestream.v1.Mapping.Kind


@dataclass(frozen=True, slots=True)
class Mapping:
    kind: int  # icestream.v1.Mapping.Kind
    build_id: str
    file: str

    @property
    def function_kind(self) -> str:
        """The kind of the functions in it."""
        if self.file == TRUNCATED:
            return "unknown"
        return _FUNCTION_KINDS.get(self.kind, "unknown")


class Mappings:
    """A list of mappings. For one thread at a time."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []
        self._rows: dict[Mapping, int] = {}
        self._module_rows: dict[tuple[str, str], int] = {}  # file and function kind -> the first mapping with both

    def __getitem__(self, row: int) -> Mapping:
        return self._mappings[row]

    def add(self, kinds: pa.Array, build_ids: pa.Array, files: pa.Array) -> Rows:
        """The mapping (a row here) of each row of the columns."""
        codes, first_rows = distinct_rows(kinds.to_numpy(), text_codes(build_ids), text_codes(files))
        columns = (kinds.take(first_rows).to_pylist(), texts(build_ids.take(first_rows)), texts(files.take(first_rows)))
        rows = [self._intern(Mapping(*each)) for each in zip(*columns, strict=True)]
        return np.array(rows, np.int32)[codes]

    def module(self, row: int) -> int:
        """The row of the first mapping of the same file and kind, whatever its build ID."""
        mapping = self._mappings[row]
        return self._module_rows.setdefault((mapping.file, mapping.function_kind), row)

    def _intern(self, mapping: Mapping) -> int:
        row = self._rows.setdefault(mapping, len(self._mappings))
        if row == len(self._mappings):
            self._mappings.append(mapping)
        return row
