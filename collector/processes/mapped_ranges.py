"""The executable mappings of a process, sorted by address, from /proc/PID/maps or from the kernel's events."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from collector.processes import memory
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import UPROBES, VDSO, FileCache, Identity, MappedFile, MapsEntry
from collector.processes.process import effective_user_of, folder_of
from collector.processes.process_events import Mapped
from icestream.v1.common_pb2 import Mapping

MAX_RANGES = 16_384  # of one process
MAX_PARTS = 8192
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


class _FilePart(NamedTuple):
    """What is known of a part of a file."""

    identity: Identity
    file: MappedFile
    path: str
    deleted: bool
    vaddr: int
    size: int  # to the end of the segment


class MappedRangeReader:
    """Reads mapped ranges. It remembers parts of files, so that the next range of the same part is cheap."""

    def __init__(self, files: FileCache) -> None:
        self._files = files
        self._parts: dict[_PartKey, _FilePart] = {}

    def read(self, pid: int, before: Iterable[MappedRange] = ()) -> list[MappedRange]:
        """Returns what the process has mapped now; [] if it has no memory of its own, or none any more.

        Does not open the files of ranges that the process had `before`. Raises OSError.
        """
        known = {
            mapped_range.entry: mapped_range for mapped_range in before if mapped_range.entry and mapped_range.file_key
        }
        lines = _LINE.findall(memory.patiently(pid, partial(_read_maps, pid)))[:MAX_RANGES]
        ranges: list[MappedRange] = []
        for start, end, offset, major, minor, inode, name in lines:
            path = name.decode("utf-8", "replace").replace("\\012", "\n")
            device = os.makedev(int(major, 16), int(minor, 16))
            entry = _entry(pid, int(start, 16), int(end, 16), path, device, int(inode))
            ranges.append(known.get(entry) or self._range(entry, int(offset, 16))[0])
        return ranges

    def mapped(self, pid: int, event: Mapped) -> MappedRange:
        """Returns the range of an event. A loader first maps the whole file, then puts data over parts of it; such a
        range ends with the segment that holds code."""
        start, offset = event.start, event.offset
        key = _PartKey(_ANYBODY, event.build_id, event.path, offset, event.end - start)
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
        mapped_range, identity = self._range(entry, offset, event.build_id, user)
        if identity is None or not mapped_range.file_key:
            return mapped_range
        mapped_range = mapped_range._replace(end=_segment_end(identity, entry, offset))
        if event.build_id and identity.inode and (identity.owner == ROOT or user is not None):
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            vaddr = start + mapped_range.bias & _MASK
            self._parts[key if identity.owner == ROOT else key._replace(user=user)] = _FilePart(
                identity, mapped_range.file, entry.path, entry.deleted, vaddr, mapped_range.end - start
            )
        return mapped_range

    def _range(
        self, entry: MapsEntry, offset: int, reported: bytes = b"", user: int | None = None
    ) -> tuple[MappedRange, Identity | None]:
        """Returns the range, and the identity of its file if it has one."""
        path, start, end = entry.path, entry.start, entry.end
        if path == VDSO:
            identity = self._files.vdso()
            if identity is None:
                return MappedRange(start, end, 0, MappedFile(Mapping.UNKNOWN, "", path), "", False, None), None
            bias = (identity.elf.vaddr(0) or 0) - start & _MASK
            file = MappedFile(Mapping.FILE, identity.build_id, path)
            return MappedRange(start, end, bias, file, identity.key, False, None), None
        if not path.startswith("/") or path == "//anon":
            file = MappedFile(Mapping.UNKNOWN, "", path) if path.startswith("[") else _ANONYMOUS
            return MappedRange(start, end, 0, file, "", path not in _NOT_COMPILED, None), None
        file = MappedFile(Mapping.UNKNOWN, "", path)
        unknown = MappedRange(start, end, offset - start & _MASK, file, "", False, entry)
        try:
            files = self._files
            identity = files.identify_reported(entry, reported, offset, user) if reported else files.identify(entry)
        except OSError:
            return unknown, None
        if identity is None:  # no ELF file: code that something generated into a file
            return unknown._replace(anonymous=True), None
        vaddr = identity.elf.vaddr(offset)
        if vaddr is None:
            return unknown, None
        file = MappedFile(Mapping.FILE, identity.build_id, path)
        return MappedRange(start, end, vaddr - start & _MASK, file, identity.key, False, entry), identity


def _read_maps(pid: int) -> bytes:
    memory.take_lock(pid)  # who cannot have it cannot open the files that are mapped either
    with open(f"{folder_of(pid)}/maps", "rb") as maps:
        return maps.read()


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
    del ranges[MAX_RANGES:]
    return True


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


def _entry(pid: int, start: int, end: int, path: str, device: int, inode: int) -> MapsEntry:
    return MapsEntry(pid, start, end, device, inode, path.removesuffix(_DELETED), path.endswith(_DELETED))


def _segment_end(identity: Identity, entry: MapsEntry, offset: int) -> int:
    for segment in identity.elf.segments:
        if segment.executable and segment.offset & -_PAGE <= offset < segment.offset + segment.size:
            size = segment.offset + segment.size - offset + _PAGE - 1 & -_PAGE
            return min(entry.end, entry.start + size)
    return entry.end
