"""Where the functions without a name begin and end: a table behind the SymCache in a symbol file.

Format: schemas/icestream/v1/symbols.proto, SymbolFile. Libraries that read SymCaches do not look at what follows.
"""

import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

_FOOTER = struct.Struct("<Q8s")  # number of functions, _MAGIC
_MAGIC = b"UNNAMED1"
_COLUMN = np.dtype("<u4")
LIMIT = 2**32
"""SymCaches have no addresses from here on."""


class UnnamedFunctions(NamedTuple):
    """n functions that do not overlap; both arrays are uint32 (n,)."""

    start: np.ndarray  # ascending, counted from where the SymCache's addresses count from
    length: np.ndarray  # bytes

    def start_of(self, address: int) -> int | None:
        """Returns where the function around an address begins, which counts from the same; None if there is none."""
        if not address < LIMIT:
            return None
        row = int(self.start.searchsorted(np.uint32(address), side="right")) - 1
        if row < 0 or address - int(self.start[row]) >= int(self.length[row]):
            return None
        return int(self.start[row])


def with_unnamed(symcache: bytes | bytearray, functions: UnnamedFunctions) -> bytes:
    """Returns the symbol file of a SymCache and of functions without a name."""
    if not len(functions.start):
        return bytes(symcache)
    gap = bytes(-len(symcache) % _COLUMN.itemsize)
    columns = (column.astype(_COLUMN).tobytes() for column in functions)
    return b"".join((symcache, gap, *columns, _FOOTER.pack(len(functions.start), _MAGIC)))


def read_unnamed(path: Path) -> UnnamedFunctions | None:
    """Maps the table of a symbol file; None if it has none. Raises OSError."""
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size - _FOOTER.size
        footer = os.pread(file.fileno(), _FOOTER.size, end) if end > 0 else b""
        if len(footer) < _FOOTER.size:
            return None
        count, magic = _FOOTER.unpack(footer)
        begin = end - count * 2 * _COLUMN.itemsize
        if magic != _MAGIC or not count or begin < 0:
            return None
        start, length = np.memmap(file, _COLUMN, "r", begin, (2, count))
    return UnnamedFunctions(np.asarray(start), np.asarray(length))
