"""Functions of frames, each kept once, so that graphs are columns of numbers."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from api.array_types import Rows
from api.queries.database import texts
from api.tree.distinct import distinct_rows, text_codes
from api.tree.mappings import Mappings
from icestream.symbols.unnamed import is_unnamed

KINDS = ("icestream", "user", "kernel", "jit", "unknown", "label")
"""Kinds of functions: where the code is; "icestream" and "label" (a label's value) for frames that are not code."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function. If `named` is false, it has no symbols and `name` is module+0xaddress, of its start if that is known.

    `line` is the one where the function starts in some build, 0 if unknown.
    """

    name: str
    module: str = ""
    file: str = ""
    line: int = 0
    kind: str = "icestream"
    named: bool = True


TOTAL, NO_STACK, UNRESOLVED, CUT, HIDDEN = range(5)
NOT_CODE = tuple(Function(name) for name in ("total", "[no stack]", "[unresolved stack]", "[cut]", "[hidden]"))
"""The functions of the first rows: of frames that are not code."""


class FunctionRows(Protocol):
    """Functions by row; the first rows are NOT_CODE's."""

    def __getitem__(self, row: int) -> Function: ...


class Functions:
    """A list of functions. For one thread at a time.

    A function is its name, its module (a mapped file, whatever its version) and its source file: all Python code has
    one module, and two programs may have functions of one name.
    """

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._functions: list[Function] = list(NOT_CODE)
        self._rows: dict[tuple[str, int, str], int] = {}  # name, module's row, source file -> row

    def __getitem__(self, row: int) -> Function:
        return self._functions[row]

    def add(self, names: pa.Array, mapping: Rows, sources: pa.Array, start_lines: pa.Array) -> Rows:
        """The function (a row here) of each frame; -1 for frames without a name. `mapping`: rows of Mappings."""
        codes, first_rows = distinct_rows(text_codes(names), mapping, text_codes(sources))
        columns = (
            texts(names.take(first_rows)),
            map(self._mappings.module, mapping[first_rows].tolist()),
            texts(sources.take(first_rows)),
            start_lines.take(first_rows).to_pylist(),
        )
        rows = [self._intern(*each) if each[0] else -1 for each in zip(*columns, strict=True)]
        return np.array(rows, np.int32)[codes]

    def _intern(self, name: str, module: int, source: str, start_line: int) -> int:
        row = self._rows.setdefault((name, module, source), len(self._functions))
        if row == len(self._functions):
            mapping = self._mappings[module]
            named = not is_unnamed(name, mapping.file)
            self._functions.append(Function(name, mapping.file, source, start_line, mapping.function_kind, named))
        return row
