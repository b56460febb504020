"""Code of a file that a process copied to memory without a file, in place of the file's own.

Programs that move their code to huge pages do so (iodlr, Node, ClickHouse, HHVM). The process then has no file at these
addresses. But what borders on them is still a mapping of the file, and where that lies tells which code belongs there.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from collector.elf.headers import Segment
from collector.processes.mapped_files import FileIdentity

_LINE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) .{4} ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +(/[^\n]*)$", re.MULTILINE
)
_PAGE = 4096
_MASK = (1 << 64) - 1

Line = tuple[bytes, ...]
"""Start, end, offset, major and minor number of the device, inode and path of a line of /proc/PID/maps."""


class Copy(NamedTuple):
    identity: FileIdentity
    bias: int  # as in MappedRange
    line: Line  # of the mapping of the file beside it


class Neighbours:
    """The mappings of files in /proc/PID/maps."""

    def __init__(self, maps: bytes) -> None:
        lines: list[Line] = _LINE.findall(maps)
        self._by_end = {int(line[1], 16): line for line in lines}
        self._by_start = {int(line[0], 16): line for line in lines}

    def copy_at(self, start: int, end: int, identify: Callable[[Line], FileIdentity | None]) -> Copy | None:
        """Returns of which file the code at these addresses may be a copy; None if what borders on them is of no file
        with code there. Raises what `identify` raises."""
        for line in (self._by_end.get(start), self._by_start.get(end)):
            identity = identify(line) if line is not None else None
            if line is not None and identity is not None and identity.build_id:
                for bias in _biases(identity, int(line[2], 16), int(line[0], 16)):
                    if any(_holds(segment, start + bias & _MASK, end - start) for segment in identity.elf.segments):
                        return Copy(identity, bias, line)
        return None


def _biases(identity: FileIdentity, offset: int, start: int) -> Iterator[int]:
    for segment in identity.elf.segments:
        if segment.offset & -_PAGE <= offset < segment.offset + segment.size:
            yield segment.vaddr + offset - segment.offset - start & _MASK


def _holds(segment: Segment, vaddr: int, size: int) -> bool:
    begin, end = segment.vaddr & -_PAGE, segment.vaddr + segment.size + _PAGE - 1 & -_PAGE
    return segment.executable and begin <= vaddr and vaddr + size <= end
