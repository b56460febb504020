"""Names of code as ranges that do not overlap, and as the text that SymCaches are made of.

The text is a Breakpad symbol file (docs/symbol_files.md in Breakpad): its FUNC records have a size, so that an address
between two functions has no name instead of the name of the function before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_HEADER = b"MODULE Linux x86_64 000000000000000000000000000000000 names\n"
_BLANK = dict.fromkeys(range(32), " ")


class SymbolRange(NamedTuple):
    start: int
    end: int  # not part of it
    name: str


@dataclass(frozen=True)
class CodeRanges:
    """n ranges that do not overlap, ascending. A file may have millions."""

    start: np.ndarray  # uint64 (n,)
    end: np.ndarray  # uint64 (n,)
    function: np.ndarray  # int64 (n,): row of the function in the other columns
    offset: np.ndarray  # int64: of its name in `names`
    length: np.ndarray  # int64: bytes of the name
    names: bytes

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[SymbolRange]:
        for row, (start, end) in enumerate(zip(self.start.tolist(), self.end.tolist(), strict=True)):
            yield SymbolRange(start, end, self.name(int(self.function[row])))

    def name(self, function: int) -> str:
        at = int(self.offset[function])
        return self.names[at : at + int(self.length[function])].decode("utf-8", "replace").translate(_BLANK)


def breakpad(ranges: Sequence[SymbolRange]) -> bytes:
    """Returns the text."""
    return _HEADER + b"".join(
        b"FUNC %x %x 0 %s\n" % (start, end - start, name.translate(_BLANK).encode("utf-8", "replace"))
        for start, end, name in ranges
    )
