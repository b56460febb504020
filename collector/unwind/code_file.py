"""What call frame information needs of an x86-64 ELF file: code, sections by name, .eh_frame without sections.

Formats: System V gABI (elf(5)); LSB 5.0 Core, 10.6.2 (.eh_frame_hdr). Counts and sizes are checked, reads are bounded.
"""

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collector.unwind.cfi_error import CfiError, CfiTooLarge

Read = Callable[[int, int], bytes]
"""(offset, size) -> at most size bytes from there."""

MAX_HEADERS = 4096
MAX_SECTIONS = 1 << 16
MAX_SECTION_BYTES = 64 << 20
MAX_CODE_SPAN = 1 << 32
"""From the first executable address to the last one."""

_MAX_VADDR = 1 << 62
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_EH_FRAME = 1, 2, 3, 0x6474E550
_PF_X, _SHF_COMPRESSED, _SHT_NOBITS, _DT_NEEDED = 1, 0x800, 8, 1
_X86_64, _EXEC, _DYN = 62, 2, 3
_ZLIB, _ZSTD = 1, 2


@dataclass(frozen=True)
class SectionHeader:
    name: str
    flags: int
    vaddr: int
    offset: int
    size: int


@dataclass(frozen=True)
class Load:
    offset: int
    vaddr: int
    size: int  # in the file
    executable: bool


@dataclass(frozen=True)
class File:
    read: Read
    entry: int
    loads: tuple[Load, ...]
    code: np.ndarray  # int64 (k, 2): executable addresses, ascending and apart
    sections: dict[str, SectionHeader]
    eh_frame_hdr: int | None  # its ELF address, by its segment
    needs_libraries: bool
    max_section_bytes: int

    def at(self, vaddr: int, size: int) -> bytes:
        """At most `size` bytes of the file that are loaded at an ELF address; b"" where nothing is."""
        for load in self.loads:
            if load.vaddr <= vaddr < load.vaddr + load.size:
                offset = vaddr - load.vaddr
                return self.read(load.offset + offset, min(size, load.size - offset))
        return b""

    def section(self, name: str) -> bytes | None:
        """The (unpacked) bytes of a section; None where there is none. Raises CfiTooLarge, and CfiError where it is cut
        or its compression is damaged."""
        header = self.sections.get(name)
        if header is None or not header.size:
            return None
        _check_size(name, header.size, self.max_section_bytes)
        data = self.read(header.offset, header.size)
        if len(data) < header.size:
            raise CfiError(f"the file ends before its section {name}")
        if header.flags & _SHF_COMPRESSED:
            kind, _, size = struct.unpack_from("<IIQ", data.ljust(24, b"\0"))
            return _unpacked(name, kind, data[24:], size, self.max_section_bytes)
        return data


def from_descriptor(descriptor: int, max_section_bytes: int = MAX_SECTION_BYTES) -> File:
    """Reads an open file. Raises CfiError."""
    return parse(lambda offset, size: _pread(descriptor, offset, size), max_section_bytes)


def from_bytes(data: bytes) -> File:
    """Reads a file that is in memory. Raises CfiError."""
    return parse(lambda offset, size: data[offset : offset + size])


def parse(read: Read, max_section_bytes: int = MAX_SECTION_BYTES) -> File:
    """Reads what `read` gives. Raises CfiError."""
    try:
        return _parse(read, max_section_bytes)
    except (OSError, OverflowError, struct.error) as error:
        raise CfiError(f"the ELF file cannot be read: {error}") from error


def legacy_compressed(data: bytes, max_bytes: int = MAX_SECTION_BYTES) -> bytes:
    """The bytes of a .zdebug_* section. Raises CfiError."""
    if data[:4] != b"ZLIB" or len(data) < 12:
        raise CfiError(".zdebug_frame: expected ZLIB and a size")
    return _unpacked(".zdebug_frame", _ZLIB, data[12:], int.from_bytes(data[4:12], "big"), max_bytes)


def _pread(descriptor: int, offset: int, size: int) -> bytes:
    if not 0 <= offset < _MAX_VADDR:
        return b""
    parts = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)


def _parse(read: Read, max_section_bytes: int) -> File:
    start = read(0, 64)
    if start[:4] != b"\x7fELF":
        raise CfiError(f"expected an ELF file, it starts with {start[:4]!r}")
    if len(start) < 64 or start[4:6] != b"\x02\x01":
        raise CfiError("expected a 64-bit little-endian ELF file")
    kind, machine, _, entry, program_at, section_at, _, _, size, count, section_size, section_count, names = (
        struct.unpack_from("<HHIQQQIHHHHHH", start, 16)
    )
    if machine != _X86_64 or kind not in (_EXEC, _DYN):
        raise CfiError(f"expected an x86-64 program or library, got machine {machine}, type {kind}")
    if not 0 < count <= MAX_HEADERS or size != 56:
        raise CfiError(f"{count} program headers of {size} bytes: expected 1 to {MAX_HEADERS} of 56")
    table = read(program_at, 56 * count)
    if len(table) < 56 * count:
        raise CfiError(f"the file ends before its {count} program headers")
    headers = list(struct.iter_unpack("<IIQQQQQQ", table))  # type, flags, offset, vaddr, paddr, file, memory, align
    loads = tuple(
        Load(offset, vaddr, in_file, bool(flags & _PF_X))
        for kind, flags, offset, vaddr, _, in_file, _, _ in headers
        if kind == _PT_LOAD and in_file and offset < _MAX_VADDR and vaddr + in_file < _MAX_VADDR
    )
    hdr = next((h[3] for h in headers if h[0] == _PT_GNU_EH_FRAME), None)
    dynamic = next((read(h[2], min(h[5], 1 << 16)) for h in headers if h[0] == _PT_DYNAMIC), b"")
    needs = any(tag == _DT_NEEDED for tag, _ in struct.iter_unpack("<QQ", dynamic[: len(dynamic) // 16 * 16]))
    sections = _sections(read, section_at, section_size, section_count, names)
    code = _code(loads)
    return File(read, min(entry, _MAX_VADDR), loads, code, sections, hdr, needs, max_section_bytes)


def _code(loads: tuple[Load, ...]) -> np.ndarray:
    found: list[list[int]] = []
    for load in sorted((load for load in loads if load.executable), key=lambda load: load.vaddr):
        end = load.vaddr + load.size
        if found and load.vaddr <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([load.vaddr, end])
    if not found:
        raise CfiError("the file has no executable segment")
    if found[-1][1] - found[0][0] > MAX_CODE_SPAN:
        raise CfiError(f"the code spans more than {MAX_CODE_SPAN} bytes")
    return np.array(found, np.int64)


def _sections(read: Read, at: int, size: int, count: int, names: int) -> dict[str, SectionHeader]:
    """By name, the first of each; {} where the table does not fit the file: it was cut off, or is no use."""
    if not at or size != 64:
        return {}
    if count == 0 or names == 0xFFFF:  # too many for the header: they are in section 0
        first = read(at, 64).ljust(64, b"\0")
        count = count or struct.unpack_from("<Q", first, 32)[0]
        names = struct.unpack_from("<I", first, 40)[0] if names == 0xFFFF else names
    if not 0 < count <= MAX_SECTIONS or names >= count:
        return {}
    table = read(at, 64 * count)
    if len(table) < 64 * count:
        return {}
    headers = list(struct.iter_unpack("<IIQQQQIIQQ", table))  # name, type, flags, vaddr, offset, size, ...
    text = read(headers[names][4], min(headers[names][5], MAX_SECTIONS * 64))
    found: dict[str, SectionHeader] = {}
    for name_at, kind, flags, vaddr, offset, length, *_ in headers:
        name = text[name_at : max(text.find(b"\0", name_at), name_at)] if name_at < len(text) else b""
        if kind != _SHT_NOBITS and 0 < len(name) <= 64 and max(vaddr, offset) + length < _MAX_VADDR:
            found.setdefault(
                name.decode("latin-1"), SectionHeader(name.decode("latin-1"), flags, vaddr, offset, length)
            )
    return found


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise CfiTooLarge(f"{name} has {size} bytes: at most {max_bytes} are read")


def _unpacked(name: str, kind: int, data: bytes, size: int, max_bytes: int) -> bytes:
    _check_size(name, size, max_bytes)
    try:
        if kind == _ZLIB:
            found = zlib.decompressobj().decompress(data, size) if size else b""
        elif kind == _ZSTD:
            import zstandard

            found = zstandard.ZstdDecompressor().stream_reader(data).read(size)
        else:
            raise CfiError(f"{name} is compressed in a way that is not known: {kind}")
    except (zlib.error, MemoryError) as error:
        raise CfiError(f"{name} cannot be unpacked: {error}") from error
    except Exception as error:
        if isinstance(error, CfiError):
            raise
        raise CfiError(f"{name} cannot be unpacked: {error}") from error
    if len(found) != size:
        raise CfiError(f"{name} cannot be unpacked: expected {size} bytes, got {len(found)}")
    return found
