"""Gives freed memory back to the host."""

import ctypes

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
