"""Gives back pages of code and constants that only the start of a program needed."""

import ctypes
import re
from pathlib import Path

_MADV_DONTNEED = 4
_MAPPING = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<mode>\S+) \S+ \S+ \d+ *(?P<path>.*)")


def drop_start_pages() -> int:
    """Unmaps the pages of this process's program and libraries; what is used again is mapped again, from the kernel's
    cache of its file. Returns the bytes of the mappings, 0 where the system cannot do it. Source: proc(5) of smaps,
    madvise(2)."""
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None:
        return 0
    dropped = 0
    try:
        smaps = Path("/proc/self/smaps").read_text(errors="replace")
    except OSError:
        return 0
    for start, end in unchanged(smaps):
        if madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED) == 0:
            dropped += end - start
    return dropped


def unchanged(smaps: str) -> list[tuple[int, int]]:
    """The mappings of files that nobody can write, and that have no pages of their own: relocated addresses, which are
    not in the file, but may be swapped out."""
    found: list[tuple[int, int]] = []
    mapping = None
    for line in smaps.splitlines():
        if match := _MAPPING.fullmatch(line):
            mapping = match if match["mode"] in ("r--p", "r-xp") and match["path"].startswith("/") else None
        elif mapping and line.startswith("Anonymous:") and line.split()[1] != "0":
            mapping = None
        elif mapping and line.startswith("Swap:") and line.split()[1] == "0":
            found.append((int(mapping["start"], 16), int(mapping["end"], 16)))
    return found
