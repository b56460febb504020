"""What the process that opens files (symcache_child.py) and the one that reads names in them (names_child.py) say to
each other.

A job has two descriptors: what to read, and the file to write a SymCache into. Its first byte says what is wanted. The
answer begins with the same byte, or with ERROR and then the reason.
"""

import mmap
import struct
from typing import NamedTuple

BEST = b"b"
"""The best kind of names in a file. Answer: KIND."""
MAKE = b"m"
"""The SymCache of one KIND of names in a file. Answer: BUILT."""
TEXT = b"t"
"""The SymCache of a Breakpad symbol file of that KIND. Answer: BUILT."""
VDSO = b"v"
"""The SymCache of the vDSO. Answer: BUILT."""
ERROR = b"e"

KIND = struct.Struct("<B")
BUILT = struct.Struct("<BQQ")  # kind of names, load address, size
MAX_SYMCACHE_BYTES = 1 << 30


class NamesError(RuntimeError):
    """A file has no names; the message says why."""


class BuiltSymCache(NamedTuple):
    """A SymCache with one kind of names."""

    version: int  # the kind
    load_address: int  # what the SymCache's addresses count from
    symcache: bytes | mmap.mmap  # and what may follow it in a symbol file (icestream/symbols/unnamed_functions.py)
