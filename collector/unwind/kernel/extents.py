"""Free and allocated ranges of rows in a table of fixed size."""

import bisect


class Extents:
    """Rows 0 to size - 1, all free at first. For one thread at a time."""

    def __init__(self, size: int) -> None:
        self._starts = [0] if size else []  # of the free ranges, ascending; no two touch
        self._counts = [size] if size else []
        self.free_rows = size

    def allocate(self, count: int) -> int | None:
        """Allocates `count` adjacent rows (at least 1), first fit, and returns the first; None if there is no such
        range."""
        count = max(count, 1)
        for at, (start, free) in enumerate(zip(self._starts, self._counts, strict=True)):
            if free >= count:
                if free == count:
                    del self._starts[at], self._counts[at]
                else:
                    self._starts[at], self._counts[at] = start + count, free - count
                self.free_rows -= count
                return start
        return None

    def free(self, start: int, count: int) -> None:
        """Frees a range that `allocate` returned."""
        count = max(count, 1)
        self.free_rows += count
        at = bisect.bisect(self._starts, start)
        if at < len(self._starts) and start + count == self._starts[at]:
            count += self._counts[at]
            del self._starts[at], self._counts[at]
        if at and self._starts[at - 1] + self._counts[at - 1] == start:
            self._counts[at - 1] += count
        else:
            self._starts.insert(at, start)
            self._counts.insert(at, count)
