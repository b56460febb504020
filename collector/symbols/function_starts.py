"""Where the functions without a symbol begin and end: by the call frame information, which stripped files have as well.

The linkage tables (.plt) have call frame information as one function each.
"""

from collections.abc import Sequence

import numpy as np

from collector.elf.error import ElfError
from collector.elf.reader import Read
from collector.elf.sections import Section, content, find, read_sections
from collector.symbols.code_ranges import Range, disjoint
from collector.unwind import cfi_records
from collector.unwind.cfi_records import FrameSection
from icestream import address_ranges
from icestream.unnamed import start_name

MAX_BYTES = 16 << 20
"""Of call frame information that is read: about 400,000 functions. Twice that takes five seconds of CPU on a
host, and 33 MB of symbols, mostly numbers."""


def with_starts(named: Sequence[Range], source: Read) -> list[Range]:
    """Adds to the ranges of functions with names those of the file's other functions; each is called by its start
    (icestream/unnamed.py). Raises OSError."""
    sections = read_sections(source)
    # At one start, the last range is the innermost one: a name comes before a number.
    both = [(code_range.start, 1, code_range) for code_range in named]
    both += [(code_range.start, 0, code_range) for code_range in _functions(source, sections)]
    return list(disjoint(code_range for _, _, code_range in sorted(both, key=lambda each: each[:2])))


def _functions(source: Read, sections: Sequence[Section]) -> list[Range]:
    section = find(sections, ".eh_frame")
    if section is None or section.size > MAX_BYTES:
        return []
    got = find(sections, ".got.plt") or find(sections, ".got")
    data = cfi_records.padded(content(source, section, MAX_BYTES))
    try:
        found = cfi_records.read(FrameSection(data, section.address, True, got.address if got else None))
    except ElfError:
        return []
    start = found.start.astype(np.uint64)
    code = np.array(sorted({(s.address, s.end) for s in sections if s.executable and 0 < s.end < 2**64}), np.uint64)
    code = code.reshape(-1, 2)
    area = address_ranges.find(code[:, 0], code[:, 1], start)
    start, length, limit = start[area >= 0], found.length.astype(np.uint64)[area >= 0], code[area[area >= 0], 1]
    end = start + np.minimum(length, limit - start)
    return [Range(*bounds, start_name(bounds[0])) for bounds in zip(start.tolist(), end.tolist(), strict=True)]
