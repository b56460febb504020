"""Reads a BPF ring buffer as one array, with no system call and no call per record.

Format: the kernel's Documentation/bpf/ringbuf.rst. A record is a word of header (u32 length with two flags,
u32 page offset) and its bytes, padded to 8. The data pages are mapped twice in a row, so what is unread is contiguous.
"""

import mmap

import numpy as np

BUSY = np.uint64(1 << 31)  # in a header: reserved, not yet complete
LENGTH = np.uint64((1 << 30) - 1)


class RingBuffer:
    """The ring buffer of a map with `size` bytes (a power of two). For one reader."""

    def __init__(self, fd: int, size: int) -> None:
        self._words = size // 8
        self._consumer_pages = mmap.mmap(fd, mmap.PAGESIZE)
        self._producer_pages = mmap.mmap(fd, mmap.PAGESIZE + 2 * size, prot=mmap.PROT_READ, offset=mmap.PAGESIZE)
        self._consumer = np.frombuffer(self._consumer_pages, np.uint64, 1)
        self._producer = np.frombuffer(self._producer_pages, np.uint64, 1)
        self._data = np.frombuffer(self._producer_pages, np.uint64, offset=mmap.PAGESIZE)

    def unread(self) -> np.ndarray:
        """All words of the records that are not consumed yet (uint64, a view), with headers. Records may still be
        busy."""
        consumed, produced = int(self._consumer[0]), int(self._producer[0])
        start = consumed // 8 % self._words
        return self._data[start : start + (produced - consumed) // 8]

    def consume(self, words: int) -> None:
        """Gives the first `words` of `unread` back to the kernel, which overwrites them."""
        self._consumer[0] += np.uint64(8 * words)

    def close(self) -> None:
        """Views handed out keep the memory mapped until they are gone."""
        del self._consumer, self._producer, self._data
        for pages in (self._consumer_pages, self._producer_pages):
            try:
                pages.close()
            except BufferError:
                continue
