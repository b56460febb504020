"""What the collector keeps in memory: little, but the code that it runs every few seconds."""

import ctypes

from icestream.loaded_code import drop_start_pages, keep_pages

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # mallopt(3)
_ARENAS = 2
_RETURNED_BYTES = 1 << 17


def keep_small() -> None:
    """Makes glibc use few arenas for all threads, and return a batch's arrays to the host once they are freed. By
    default it keeps more memory the larger they were. Call it before threads are started. Does nothing without
    glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _RETURNED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _RETURNED_BYTES)


def keep_code() -> None:
    """Makes the kernel keep the code that runs from now on, where that is permitted: a host that is short of memory
    drops code that was not used for some seconds, and then each batch would wait for a disk, and take several times the
    CPU. Call it when all code is loaded, and before capabilities are dropped."""
    drop_start_pages()
    keep_pages()
