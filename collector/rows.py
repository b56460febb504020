"""What a process has mapped with code: rows sorted by address, from /proc/PID/maps or from the kernel's events."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from collector.mapped_files import VDSO, FileCache, Identity, MappedFile, Place
from collector.process_events import Mapped
from icestream.v1.common_pb2 import Mapping

MAX_ROWS = 16_384  # of one process
_MASK = (1 << 64) - 1
_PAGE = 4096
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *([^\n]*)$", re.MULTILINE)
_DELETED = " (deleted)"
_ANONYMOUS = MappedFile(Mapping.UNKNOWN, "", "[anon]")
_NOT_COMPILED = ("[vsyscall]", "[uprobes]")
_start, _end = attrgetter("start"), attrgetter("end")


class Row(NamedTuple):
    """Addresses [start, end) of a process."""

    start: int
    end: int
    bias: int  # ELF virtual address - address, modulo 2^64
    file: MappedFile
    anonymous: bool  # no ELF file: what lies there may have been compiled at run time
    place: Place | None  # None where it is no file


def read_rows(pid: int, files: FileCache, before: Iterable[Row] = ()) -> list[Row]:
    """What the process has mapped now; [] where it has no memory of its own, or has it no more. Raises OSError.

    Files of rows that it had `before` are not looked at again.
    """
    known = {row.place: row for row in before if row.place and row.file.build_id}
    with open(f"/proc/{pid}/maps", "rb") as maps:
        lines = _LINE.findall(maps.read())[:MAX_ROWS]
    rows: list[Row] = []
    for start, end, offset, major, minor, inode, name in lines:
        path = name.decode("utf-8", "replace").replace("\\012", "\n")
        place = _place(pid, int(start, 16), int(end, 16), path, os.makedev(int(major, 16), int(minor, 16)), int(inode))
        rows.append(known.get(place) or _row(place, int(offset, 16), files, b""))
    return rows


def mapped_row(pid: int, event: Mapped, files: FileCache) -> Row:
    """What an event says. Where one mapping spans the whole file, as loaders make it before they put data in its place,
    it ends with the segment that holds code."""
    place = _place(pid, event.start, event.end, event.path, event.device, event.inode)
    return _row(place, event.offset, files, event.build_id, cut=True)


def put(rows: list[Row], row: Row) -> bool:
    """Maps `row` in place of what was there; whether that changes anything."""
    first = bisect_right(rows, row.start, key=_end)  # the first that ends behind our start
    last = bisect_left(rows, row.end, key=_start)  # the first that starts behind our end
    if last == first + 1 and _covers(rows[first], row):
        return False
    pieces = [row]
    if first < last:
        left, right = rows[first], rows[last - 1]
        if left.start < row.start:
            pieces.insert(0, left._replace(end=row.start))
        if right.end > row.end:
            pieces.append(right._replace(start=row.end))
    elif first > 0 and row.anonymous and row.place is None and _continues(rows[first - 1], row):
        first -= 1
        pieces = [rows[first]._replace(end=row.end)]
    rows[first:last] = pieces
    del rows[MAX_ROWS:]
    return True


def _covers(old: Row, new: Row) -> bool:
    return old.start <= new.start and old.end >= new.end and (old.bias, old.file) == (new.bias, new.file)


def _continues(old: Row, new: Row) -> bool:
    return old.end == new.start and old.place is None and old.file == new.file


def _place(pid: int, start: int, end: int, path: str, device: int, inode: int) -> Place:
    return Place(pid, start, end, device, inode, path.removesuffix(_DELETED), path.endswith(_DELETED))


def _row(place: Place, offset: int, files: FileCache, told: bytes, cut: bool = False) -> Row:
    path, start, end = place.path, place.start, place.end
    if path == VDSO:
        identity = files.vdso()
        if identity is None:
            return Row(start, end, 0, MappedFile(Mapping.UNKNOWN, "", path), False, None)
        bias = (identity.elf.vaddr(0) or 0) - start & _MASK
        return Row(start, end, bias, MappedFile(Mapping.FILE, identity.build_id, path), False, None)
    if not path.startswith("/") or path == "//anon":
        file = MappedFile(Mapping.UNKNOWN, "", path) if path.startswith("[") else _ANONYMOUS
        return Row(start, end, 0, file, path not in _NOT_COMPILED, None)
    unknown = Row(start, end, offset - start & _MASK, MappedFile(Mapping.UNKNOWN, "", path), False, place)
    try:
        identity = files.identify_told(place, told, offset) if told else files.identify(place)
    except OSError:
        return unknown
    if identity is None:  # no ELF file: code that something generated into a file
        return unknown._replace(anonymous=True)
    vaddr = identity.elf.vaddr(offset)
    if vaddr is None:
        return unknown
    file = MappedFile(Mapping.FILE, identity.build_id, path)
    return Row(start, _segment_end(identity, place, offset) if cut else end, vaddr - start & _MASK, file, False, place)


def _segment_end(identity: Identity, place: Place, offset: int) -> int:
    for segment in identity.elf.segments:
        if segment.executable and segment.offset & -_PAGE <= offset < segment.offset + segment.size:
            size = segment.offset + segment.size - offset + _PAGE - 1 & -_PAGE
            return min(place.end, place.start + size)
    return place.end
