"""Makes a SymCache of functions of which only the names are known."""

import numpy as np

from collector.symbols import symcache_writer
from collector.symbols.code_ranges import CodeRanges
from collector.symbols.symcache_layout import LOCATION, NONE
from collector.symbols.symcache_writer import Content

_NOWHERE = np.array((NONE,) * 4, LOCATION)


def of_functions(ranges: CodeRanges, base: int) -> bytearray:
    """Returns the SymCache, whose addresses count from `base`; it lacks functions below and far above that."""
    kept = (ranges.start >= np.uint64(base)) & (ranges.end - np.uint64(base) < NONE)
    start, end = ((column[kept] - np.uint64(base)).astype(np.int64) for column in (ranges.start, ranges.end))
    function, row, of = np.unique(ranges.function[kept], return_index=True, return_inverse=True)
    gaps = end != np.append(start[1:], -1)  # behind a function
    place = np.arange(len(start)) + np.cumsum(gaps) - gaps
    code = np.full(len(start) + np.count_nonzero(gaps), _NOWHERE)
    code["function"][place], code["line"][place] = of, 0
    begins = np.empty(len(code), np.uint32)
    begins[place], begins[place[gaps] + 1] = start, end[gaps]
    names = (ranges.name(int(each)).encode("utf-8", "replace") for each in function)
    return symcache_writer.write(Content(names, start[row], [], code[:0], code, begins))
