"""Reads areas of a process's memory, many at a time."""

import numpy as np

from collector.processes import pages


def read_areas(pid: int, addresses: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
    """Returns `sizes[i]` bytes at `addresses[i]` (uint64) for each i; None for an area that cannot be read
    completely, and from pages.MAX_BYTES on."""
    try:
        return pages.read(pid, list(zip(addresses.tolist(), sizes.tolist(), strict=True)))
    except OSError:  # the process is gone
        return [None] * len(addresses)
