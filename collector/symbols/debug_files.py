"""Separate debug files: where they lie, and whether they belong to a file.

By build ID they lie in /usr/lib/debug/.build-id/xx/yyy.debug; by the name in a file's section .gnu_debuglink, beside
the file, in .debug/ beside it, or in /usr/lib/debug/ and the file's folder (gdb's manual, "Separate Debug Files"). Each
place is looked for in the host's root and in those of the processes that have the file.
"""

import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from collector.elf import identity
from collector.elf.error import ElfError
from collector.elf.reader import file_reader
from collector.elf.sections import content, find, read_sections

MAX_CHECKED_BYTES = 4 << 30
"""A larger file is not compared with a checksum."""
DEBUG = "/usr/lib/debug"

_MAX_LINK_BYTES = 4096
_CHUNK = 1 << 20


class DebugLink(NamedTuple):
    """What .gnu_debuglink says: a name without a folder, and the CRC-32 of the whole debug file."""

    name: str
    crc: int


def by_build_id(build_id: str, roots: Iterable[str]) -> Iterator[int]:
    """Descriptors of regular files at the place of a build ID; the caller closes them, and compares build IDs."""
    digits = build_id.removeprefix("gnu:")
    if digits == build_id or len(digits) < 4 or set(digits) - set("0123456789abcdef"):
        return
    for root in roots:
        yield from opened(f"{root}{DEBUG}/.build-id/{digits[:2]}/{digits[2:]}.debug")


def by_link(descriptor: int, path: str, roots: Iterable[str]) -> Iterator[int]:
    """Descriptors of the debug files that belong to an open file; the caller closes them. `path`: where the file lies
    in its root. A debug file belongs to it if both have the same build ID, or if one has none and the CRC is right."""
    link = debug_link(descriptor)
    if link is None or not path.startswith("/"):
        return
    folder = PurePosixPath(path).parent
    for root in roots:
        for place in (folder / link.name, folder / ".debug" / link.name, DEBUG + str(folder / link.name)):
            for debug in opened(f"{root}{place}"):
                if _belongs(debug, descriptor, link.crc):
                    yield debug
                else:
                    os.close(debug)


def debug_link(descriptor: int) -> DebugLink | None:
    """None where the file has none, or one that leads to another folder."""
    source = file_reader(descriptor)
    try:
        data = content(source, find(read_sections(source), ".gnu_debuglink"), _MAX_LINK_BYTES)
    except OSError:
        return None
    name, end, _ = data.partition(b"\0")
    at = len(name) + 4 & ~3  # past the name's end, at the next multiple of four
    if not name or not end or b"/" in name or name in (b".", b"..") or at + 4 > len(data):
        return None
    return DebugLink(os.fsdecode(name), struct.unpack_from("<I", data, at)[0])


def opened(path: str) -> Iterator[int]:
    """A descriptor of the regular file there, or nothing. Nothing else is ever opened: that may have effects."""
    try:
        looked = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        if not stat.S_ISREG(os.fstat(looked).st_mode):
            return
        descriptor = os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    finally:
        os.close(looked)
    yield descriptor


def _belongs(debug: int, file: int, crc: int) -> bool:
    try:
        if os.path.sameopenfile(debug, file):
            return False
        build_id, wanted = identity.read_file(debug).build_id, identity.read_file(file).build_id
        return build_id == wanted if build_id and wanted else _crc(debug) == crc
    except (ElfError, OSError):
        return False


def _crc(descriptor: int) -> int | None:
    """CRC-32 of the whole file; None where it is too large. Raises OSError."""
    if os.fstat(descriptor).st_size > MAX_CHECKED_BYTES:
        return None
    crc = offset = 0
    while chunk := os.pread(descriptor, _CHUNK, offset):
        crc = zlib.crc32(chunk, crc)
        offset += len(chunk)
    return crc
