"""Names of code as ranges that do not overlap, and as the text that SymCaches are made of.

The text is a Breakpad symbol file (docs/symbol_files.md in Breakpad): its FUNC records have a size, so that an address
between two functions has no name instead of the name of the function before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_HEADER = b"MODULE Linux x86_64 000000000000000000000000000000000 names\n"
_BLANK = dict.fromkeys(range(32), " ")


class Range(NamedTuple):
    start: int
    end: int  # not part of it
    name: str


def disjoint(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yields ranges by start, cut where they overlap: an address belongs to the innermost range around it.

    `ranges` are sorted by start; of those with the same start, the last one is innermost.
    """
    around: list[Range] = []
    at = 0
    for code_range in ranges:
        while around and around[-1].end <= code_range.start:
            last = around.pop()
            if at < last.end:
                yield Range(at, last.end, last.name)
                at = last.end
        if around and at < code_range.start:
            yield Range(at, code_range.start, around[-1].name)
        at = max(at, code_range.start)
        if code_range.end > code_range.start:
            around.append(code_range)
    while around:
        last = around.pop()
        if at < last.end:
            yield Range(at, last.end, last.name)
            at = last.end


def breakpad(ranges: Sequence[Range], base: int = 0) -> bytes:
    """Returns the text, with addresses that count from `base`; leaves out ranges below it."""
    return _HEADER + b"".join(
        b"FUNC %x %x 0 %s\n" % (start - base, end - start, name.translate(_BLANK).encode("utf-8", "replace"))
        for start, end, name in ranges
        if start >= base
    )
