"""Mappings of locations, each kept once."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from api.array_types import Rows
from api.queries.database import texts
from api.tree.distinct import distinct_rows, text_codes
from icestream.symbols.unnamed import TRUNCATED

_FUNCTION_KINDS = {
    0: "unknown",
    1: "user",
    2: "kernel",
    3: "kernel",
    4: "jit",
    5: "user",
}  # by icestream.v1.Mapping.Kind


_NAMED = 4
_KERNEL_FILE = "[kernel]"


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
        if self.file == _KERNEL_FILE and self.kind == _NAMED:  # code that it generated
            return "kernel"
        return _FUNCTION_KINDS.get(self.kind, "unknown")


class Mappings:
    """A list of mappings. For one thread at a time."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []
        self._rows: dict[Mapping, int] = {}
        self._module_rows: dict[tuple[str, str], int] = {}  # file and function kind -> the first mapping with both
        self._build_ids: defaultdict[str, list[str]] = defaultdict(list)  # by file
        self._first_file: dict[str, str] = {}  # by build ID
        self.has_copies = False
        """Whether a file was mapped by several paths."""

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

    def one_file(self, files: Iterable[str]) -> dict[str, str]:
        """Which of these paths lead to one file: for each of them, the one that stands for all. Paths that are alone
        are not in it. Builds that were mapped by one path are one file, too.
        """
        joined: dict[str, str] = {}  # a path, and one that comes before it in order, or itself

        def first(file: str) -> str:
            while joined[file] != file:
                file = joined[file]
            return file

        by_build_id: dict[str, str] = {}
        for file in sorted(files):
            joined[file] = file
            for build_id in self._build_ids.get(file, ()):
                earlier, later = sorted((first(file), first(by_build_id.setdefault(build_id, file))))
                joined[later] = earlier
        others = {file: first(file) for file in joined if joined[file] != file}
        return others | {file: file for file in others.values()}

    def _intern(self, mapping: Mapping) -> int:
        row = self._rows.setdefault(mapping, len(self._mappings))
        if row == len(self._mappings):
            self._mappings.append(mapping)
            if mapping.build_id and mapping.file:
                self._build_ids[mapping.file].append(mapping.build_id)
                first_file = self._first_file.setdefault(mapping.build_id, mapping.file)
                self.has_copies |= first_file != mapping.file
        return row
