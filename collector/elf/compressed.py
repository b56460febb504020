"""Compressed sections: SHF_COMPRESSED (System V gABI), and the older .zdebug_* of the GNU tools."""

import struct
import zlib

from collector.elf.error import ElfError, ElfTooLarge

_HEADER = struct.Struct("<IIQ8x")  # kind, reserved, size, alignment
_ZLIB, _ZSTD = 1, 2


def unpack(name: str, data: bytes, limit: int) -> bytes:
    """Returns what a section with SHF_COMPRESSED of a 64-bit file contains. Raises ElfError; ElfTooLarge if that is
    more than `limit` bytes."""
    kind, _, size = _HEADER.unpack_from(data.ljust(_HEADER.size, b"\0"))
    return _unpack(name, kind, data[_HEADER.size :], size, limit)


def unpack_gnu(name: str, data: bytes, limit: int) -> bytes:
    """Returns what a .zdebug_* section contains. Raises as `unpack`."""
    if data[:4] != b"ZLIB" or len(data) < 12:
        raise ElfError(f"{name}: expected ZLIB and a size")
    return _unpack(name, _ZLIB, data[12:], int.from_bytes(data[4:12], "big"), limit)


def check_size(name: str, size: int, limit: int) -> None:
    """Raises ElfTooLarge."""
    if size > limit:
        raise ElfTooLarge(f"{name} has {size} bytes: at most {limit} are read")


def _unpack(name: str, kind: int, data: bytes, size: int, limit: int) -> bytes:
    check_size(name, size, limit)
    if kind not in (_ZLIB, _ZSTD):
        raise ElfError(f"{name} is compressed by an unknown method: {kind}")
    try:
        content = _zlib(data, size) if kind == _ZLIB else _zstd(data, size)
    except Exception as error:  # the errors of two libraries, and MemoryError
        raise ElfError(f"{name} cannot be unpacked: {error}") from error
    if len(content) != size:
        raise ElfError(f"{name} cannot be unpacked: expected {size} bytes, got {len(content)}")
    return content


def _zlib(data: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(data, size) if size else b""  # a size of 0 would mean no limit


def _zstd(data: bytes, size: int) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(data).read(size)
