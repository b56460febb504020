"""The executable mappings of a process, sorted by address, from /proc/PID/maps or from the kernel's events."""

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from collector.elf.headers import Segment
from collector.processes import memory
from collector.processes.copied_text import Line, Neighbours
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import UPROBES, VDSO, FileCache, FileIdentity, MappedFile, MapsEntry
from collector.processes.process import effective_user_of, folder_of
from collector.processes.process_events import Mapped
from collector.processes.range_limit import MAX_RANGES, NamedRange, limited
from collector.processes.regular_file import program_of
from icestream.v1.common_pb2 import Mapping

MAX_PARTS = 8192
_MAX_LOOKS = 8  # for copies of code, of one process in a second
_MASK = (1 << 64) - 1
_PAGE = 4096
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *([^\n]*)$", re.MULTILINE)
_DELETED = " (deleted)"
_ANONYMOUS = MappedFile(Mapping.UNKNOWN, "", "[anon]")
_NOT_COMPILED = ("[vsyscall]", UPROBES)
_start, _end = attrgetter("start"), attrgetter("end")


class MappedRange(NamedTuple):
    """Addresses [start, end) of a process."""

    start: int
    end: int
    bias: int  # ELF virtual address - address, modulo 2^64
    file: MappedFile
    file_key: str  # Identity.key of the file; "" if it has no build ID
    anonymous: bool  # no ELF file: the code there may have been compiled at run time
    entry: MapsEntry | None  # None if it is no file


_ANYBODY = -1


class _PartKey(NamedTuple):
    """What the kernel reports of a part of a file, and for whom it is the same part."""

    user: int | None  # the effective one of the process that maps it; _ANYBODY for a file of root
    build_id: bytes
    path: str
    offset: int
    size: int
    program: bytes = b""  # regular_file.program_of, if the process has just begun to run it


class _FilePart(NamedTuple):
    """What is known of a part of a file."""

    identity: FileIdentity
    file: MappedFile
    path: str
    deleted: bool
    vaddr: int
    size: int  # to the end of the segment


class _Found(NamedTuple):
    mapped_range: MappedRange
    identity: FileIdentity | None = None  # of its file
    segment: Segment | None = None


class MappedRangeReader:
    """Reads mapped ranges. It remembers parts of files, so that the next range of the same part is cheap."""

    def __init__(self, files: FileCache) -> None:
        self._files = files
        self._parts: dict[_PartKey, _FilePart] = {}
        self._copies_looked_for: Counter[int] = Counter()  # by process, since
        self._since = 0.0  # time.monotonic

    def read(self, pid: int, before: Iterable[MappedRange] = ()) -> list[MappedRange]:
        """Returns what the process has mapped now; [] if it has no memory of its own, or none any more.

        Does not open the files of ranges that the process had `before`. Raises OSError.
        """
        known = {
            mapped_range.entry: mapped_range for mapped_range in before if mapped_range.entry and mapped_range.file_key
        }
        maps = memory.patiently(pid, partial(_read_maps, pid))
        neighbours: Neighbours | None = None
        ranges: list[MappedRange] = []
        for line in limited(_LINE.findall(maps), _described, _joined_lines, MAX_RANGES):
            entry = _entry_of(pid, line)
            mapped_range = known.get(entry) or self._range(entry, int(line[2], 16), lambda: ranges).mapped_range
            if mapped_range.anonymous:
                neighbours = neighbours or Neighbours(maps)
                mapped_range = self._copy(mapped_range, pid, neighbours) or mapped_range
            ranges.append(mapped_range)
        return ranges

    def mapped(self, pid: int, event: Mapped, before: Callable[[], Sequence[MappedRange]] | None = None) -> MappedRange:
        """Returns the range of an event, of a process that had the ranges `before`; if it had none, the event is that
        of the program that it has begun to run. A loader first maps the whole file, then puts data over parts of it;
        such a range ends with the segment that holds code."""
        start, offset = event.start, event.offset
        begins = before is not None and event.build_id and not before()
        program = program_of(pid) if begins else b""
        key = _PartKey(_ANYBODY, event.build_id, event.path, offset, event.end - start, program)
        part, user = self._parts.get(key), None
        if part is None and event.build_id:
            user = effective_user_of(pid)
            part = self._parts.get(key._replace(user=user))
        if part is not None:
            entry = MapsEntry(pid, start, event.end, 0, 0, part.path, part.deleted)
            self._files.note_mapped(part.identity, entry)
            bias = part.vaddr - start & _MASK
            return MappedRange(start, start + part.size, bias, part.file, part.identity.key, False, entry)
        entry = _entry(pid, start, event.end, event.path, event.device, event.inode)
        before = before or tuple
        mapped_range, identity, segment = self._range(entry, offset, before, event.build_id, user, known=not program)
        if mapped_range.anonymous and _takes_code(mapped_range, before()):
            return self._find_copy(mapped_range, pid) or mapped_range
        if identity is None or segment is None or not mapped_range.file_key:
            return mapped_range
        mapped_range = mapped_range._replace(end=_segment_end(segment, entry, offset))
        one = len(identity.elf.segments_at(offset)) == 1  # else the next range may be of another segment
        if event.build_id and one and identity.inode and (identity.owner == ROOT or user is not None):
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            vaddr = start + mapped_range.bias & _MASK
            self._parts[key if identity.owner == ROOT else key._replace(user=user)] = _FilePart(
                identity, mapped_range.file, entry.path, entry.deleted, vaddr, mapped_range.end - start
            )
        return mapped_range

    def _range(
        self,
        entry: MapsEntry,
        offset: int,
        before: Callable[[], Iterable[MappedRange]],
        reported: bytes = b"",
        user: int | None = None,
        known: bool = True,
    ) -> _Found:
        path, start, end = entry.path, entry.start, entry.end
        if path == VDSO:
            identity = self._files.vdso()
            if identity is None:
                return _Found(MappedRange(start, end, 0, MappedFile(Mapping.UNKNOWN, "", path), "", False, None))
            bias = (identity.elf.vaddr(0) or 0) - start & _MASK
            file = MappedFile(Mapping.FILE, identity.build_id, path)
            return _Found(MappedRange(start, end, bias, file, identity.key, False, None))
        if not path.startswith("/") or path == "//anon":
            file = MappedFile(Mapping.UNKNOWN, "", path) if path.startswith("[") else _ANONYMOUS
            return _Found(MappedRange(start, end, 0, file, "", path not in _NOT_COMPILED, None))
        file = MappedFile(Mapping.UNKNOWN, "", path)
        unknown = MappedRange(start, end, offset - start & _MASK, file, "", False, entry)
        try:
            files = self._files
            identity = (
                files.identify_reported(entry, reported, offset, user, known) if reported else files.identify(entry)
            )
        except OSError:
            return _Found(unknown)
        if identity is None:  # no ELF file: code that something generated into a file
            return _Found(unknown._replace(anonymous=True))
        segment = _segment(identity, entry, offset, before)
        if segment is None:
            return _Found(unknown)
        return _Found(_of_file(identity, _bias(segment, entry, offset), entry), identity, segment)

    def _find_copy(self, mapped_range: MappedRange, pid: int) -> MappedRange | None:
        """Reads what the process has mapped, but not often: a process may map over its code again and again."""
        if (now := time.monotonic()) > self._since + 1:
            self._copies_looked_for, self._since = Counter(), now
        self._copies_looked_for[pid] += 1
        if self._copies_looked_for[pid] > _MAX_LOOKS:
            return None
        try:
            neighbours = Neighbours(memory.patiently(pid, partial(_read_maps, pid)))
        except OSError:
            return None
        return self._copy(mapped_range, pid, neighbours)

    def _copy(self, mapped_range: MappedRange, pid: int, neighbours: Neighbours) -> MappedRange | None:
        """The range as one of a file whose code it may be a copy of; None if there is no such file."""
        start, end = mapped_range.start, mapped_range.end
        try:
            copy = neighbours.copy_at(start, end, lambda line: self._files.identify(_entry_of(pid, line)))
        except OSError:
            return None
        if copy is None:
            return None
        return _of_file(copy.identity, copy.bias, _entry_of(pid, copy.line)._replace(start=start, end=end))


def _of_file(identity: FileIdentity, bias: int, entry: MapsEntry) -> MappedRange:
    file = MappedFile(Mapping.FILE, identity.build_id, entry.path)
    return MappedRange(entry.start, entry.end, bias, file, identity.key, False, entry)


def _takes_code(new: MappedRange, ranges: Sequence[MappedRange]) -> bool:
    """Whether a range takes the place of code of a file."""
    first, last = bisect_right(ranges, new.start, key=_end), bisect_left(ranges, new.end, key=_start)
    return any(old.file_key for old in ranges[first:last])


def _segment(
    identity: FileIdentity, entry: MapsEntry, offset: int, before: Callable[[], Iterable[MappedRange]]
) -> Segment | None:
    """Returns the segment that a mapping belongs to. If the same page has several, it is the one whose address fits: to
    those that the file must have, or to other mappings of the file; else, by address, the first one of that length."""
    segments = identity.elf.segments_at(offset)
    if len(segments) < 2:
        return segments[0] if segments else None
    biases = {0} if identity.elf.fixed else {each.bias for each in before() if each.file_key == identity.key}
    fitting = [segment for segment in segments if _bias(segment, entry, offset) in biases]
    same = [segment for segment in segments if _segment_end(segment, entry._replace(end=_MASK), offset) == entry.end]
    return (fitting or same or segments)[0]


def _bias(segment: Segment, entry: MapsEntry, offset: int) -> int:
    return segment.vaddr + offset - segment.offset - entry.start & _MASK


def _segment_end(segment: Segment, entry: MapsEntry, offset: int) -> int:
    if not segment.executable:
        return entry.end
    return min(entry.end, entry.start + (segment.offset + segment.size - offset + _PAGE - 1 & -_PAGE))


def _read_maps(pid: int) -> bytes:
    memory.take_lock(pid)  # without it, the files that are mapped cannot be opened either
    with open(f"{folder_of(pid)}/maps", "rb") as maps:
        return maps.read()


def _described(line: Line) -> NamedRange:
    return NamedRange(int(line[0], 16), int(line[1], 16), line[6], not line[6].startswith(b"/"))


def _joined_lines(first: Line, last: Line) -> Line:
    return (first[0], last[1], *first[2:])


def put(ranges: list[MappedRange], mapped_range: MappedRange, replaced: list[MappedRange] | None = None) -> bool:
    """Puts `mapped_range` in place of what was mapped there. Returns whether that changes anything. Adds to `replaced`
    the parts of ranges whose place it took, if it says something else of them."""
    first = bisect_right(ranges, mapped_range.start, key=_end)  # the first that ends behind our start
    last = bisect_left(ranges, mapped_range.end, key=_start)  # the first that starts behind our end
    if last == first + 1 and _covers(ranges[first], mapped_range):
        return False
    pieces = [mapped_range]
    if first < last:
        left, right = ranges[first], ranges[last - 1]
        if replaced is not None:
            replaced += _replaced(ranges[first:last], mapped_range)
        if left.start < mapped_range.start:
            pieces.insert(0, left._replace(end=mapped_range.start))
        if right.end > mapped_range.end:
            pieces.append(right._replace(start=mapped_range.end))
    elif (
        first > 0
        and mapped_range.anonymous
        and mapped_range.entry is None
        and _continues(ranges[first - 1], mapped_range)
    ):
        first -= 1
        pieces = [ranges[first]._replace(end=mapped_range.end)]
    ranges[first:last] = pieces
    if len(ranges) > MAX_RANGES:
        ranges[:] = limited(ranges, _described_range, _joined, MAX_RANGES * 7 // 8)
    return True


def _described_range(each: MappedRange) -> NamedRange:
    return NamedRange(each.start, each.end, each.file.file, each.anonymous and each.entry is None)


def _joined(first: MappedRange, last: MappedRange) -> MappedRange:
    return first._replace(end=last.end)


def _replaced(ranges: list[MappedRange], new: MappedRange) -> Iterator[MappedRange]:
    for old in ranges:
        if not _is_same(old, new):
            yield old._replace(start=max(old.start, new.start), end=min(old.end, new.end))


def _covers(old: MappedRange, new: MappedRange) -> bool:
    return _is_same(old, new) and old.start <= new.start and old.end >= new.end


def _is_same(old: MappedRange, new: MappedRange) -> bool:
    return (old.bias, old.file, old.file_key) == (new.bias, new.file, new.file_key)


def _continues(old: MappedRange, new: MappedRange) -> bool:
    return old.end == new.start and old.entry is None and old.file == new.file


def _entry_of(pid: int, line: Line) -> MapsEntry:
    start, end, _, major, minor, inode, name = line
    path = name.decode("utf-8", "replace").replace("\\012", "\n")
    return _entry(pid, int(start, 16), int(end, 16), path, os.makedev(int(major, 16), int(minor, 16)), int(inode))


def _entry(pid: int, start: int, end: int, path: str, device: int, inode: int) -> MapsEntry:
    return MapsEntry(pid, start, end, device, inode, path.removesuffix(_DELETED), path.endswith(_DELETED))
