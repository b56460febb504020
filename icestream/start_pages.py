"""Gives the pages of a library back that only its start needed."""

import ctypes
import re
from pathlib import Path

_MADV_DONTNEED = 4
_MAPPING = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p \S+ \S+ \d+ +(?P<path>.+)")


def drop_start_pages(library: str) -> int:
    """Unmaps the pages of a loaded library, a path, that are as in its file; what is used again is mapped again, from
    the kernel's cache of that file. Returns the bytes of the mappings, 0 where the kernel does not tell.

    Mappings with pages of their own (relocated addresses), which would be lost, are left alone. Source: proc(5), smaps;
    madvise(2).
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None:
        return 0
    dropped = 0
    for start, end in _unchanged(library):
        if madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED) == 0:
            dropped += end - start
    return dropped


def _unchanged(library: str) -> list[tuple[int, int]]:
    """The mappings of a library that nobody can write, and that have no anonymous pages."""
    try:
        lines = Path("/proc/self/smaps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    mapping: tuple[int, int] | None = None
    for line in lines:
        if match := _MAPPING.fullmatch(line):
            mapping = (int(match["start"], 16), int(match["end"], 16)) if match["path"] == library else None
        elif "-" in line.split(" ", 1)[0]:
            mapping = None  # of something else
        elif mapping and line.startswith("Anonymous:") and line.split()[1] == "0":
            found.append(mapping)
    return found
