"""Finds separate debug files, and checks that they belong to a file.

By build ID they are in /usr/lib/debug/.build-id/xx/yyy.debug. By the name in a file's section .gnu_debuglink they are
beside the file, in .debug/ beside it, or below /usr/lib/debug/ in the file's folder (gdb's manual, "Separate Debug
Files"). All this applies to the host's root and to those of the processes that have the file.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from collector.elf import identity
from collector.elf.error import ElfError
from collector.elf.reader import file_reader
from collector.elf.sections import content, find, read_sections
from collector.processes.regular_file import Accept, open_in_root

MAX_CHECKED_BYTES = 4 << 30
"""The checksum of a larger file is not computed."""
DEBUG = "/usr/lib/debug"

_MAX_LINK_BYTES = 4096
_CHUNK = 1 << 20


class DebugLink(NamedTuple):
    """The content of .gnu_debuglink: a name without a folder, and the CRC-32 of the debug file."""

    name: str
    crc: int


def by_build_id(build_id: str, roots: Iterable[str], accept: Accept) -> Iterator[int]:
    """Yields descriptors of files at the path of a build ID that may be opened; the caller closes them and checks their
    build IDs."""
    digits = build_id.removeprefix("gnu:")
    if digits == build_id or len(digits) < 4 or set(digits) - set("0123456789abcdef"):
        return
    for root in roots:
        yield from opened(root, f"{DEBUG}/.build-id/{digits[:2]}/{digits[2:]}.debug", accept)


def by_link(descriptor: int, path: str, roots: Iterable[str], accept: Accept) -> Iterator[int]:
    """Yields descriptors of the debug files that belong to an open file and may be opened; the caller closes them.

    `path`: of the file in its root. A debug file belongs to it if both have the same build ID, or if one of them has
    none and the CRC is right.
    """
    link = debug_link(descriptor)
    if link is None or not path.startswith("/"):
        return
    folder = PurePosixPath(path).parent
    for root in roots:
        for candidate in (folder / link.name, folder / ".debug" / link.name, DEBUG + str(folder / link.name)):
            for debug in opened(root, str(candidate), accept):
                if _belongs(debug, descriptor, link.crc):
                    yield debug
                else:
                    os.close(debug)


def debug_link(descriptor: int) -> DebugLink | None:
    """Returns the link of an open file; None if it has none, or one to another folder."""
    source = file_reader(descriptor)
    try:
        data = content(source, find(read_sections(source), ".gnu_debuglink"), _MAX_LINK_BYTES)
    except OSError:
        return None
    name, end, _ = data.partition(b"\0")
    at = len(name) + 4 & ~3  # behind the name, at the next multiple of four
    if not name or not end or b"/" in name or name in (b".", b"..") or at + 4 > len(data):
        return None
    return DebugLink(os.fsdecode(name), struct.unpack_from("<I", data, at)[0])


def opened(root: str, path: str, accept: Accept | None = None) -> Iterator[int]:
    """Yields a descriptor if there is a regular file that may be opened."""
    try:
        descriptor = open_in_root(root, path, accept)
    except OSError:
        return
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
    """Returns the CRC-32 of a file; None if the file is too large. Raises OSError."""
    if os.fstat(descriptor).st_size > MAX_CHECKED_BYTES:
        return None
    crc = offset = 0
    while chunk := os.pread(descriptor, _CHUNK, offset):
        crc = zlib.crc32(chunk, crc)
        offset += len(chunk)
    return crc
