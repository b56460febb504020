"""Gzip of senders, with a limit of what it may become."""

import zlib

from gateway.errors import Refused, too_large

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's window bits that mean gzip
_PIECE = 16_384
_MAX_MEMBERS = 10_000
"""Each member costs time, even if it is empty; a packed profile has one."""


def unpack(data: bytes, limit: int) -> bytes:
    """Unpacks data that is in gzip; never makes more than `limit` bytes. Raises Refused.

    May take a second, so event loops call it in a thread.
    """
    if not data.startswith(_GZIP_MAGIC):
        if len(data) > limit:
            raise too_large(limit, "the profile")
        return data
    unpacked = bytearray()
    at = members = 0
    while data.startswith(_GZIP_MAGIC, at):  # gzip may have several members
        members += 1
        if members > _MAX_MEMBERS:
            raise Refused(400, "bad_body", f"gzip with more than {_MAX_MEMBERS} members")
        at = _unpack_member(data, at, unpacked, limit)
    return bytes(unpacked)


def _unpack_member(data: bytes, at: int, unpacked: bytearray, limit: int) -> int:
    """Adds what the member that begins at `at` holds to `unpacked`; returns where the member ends. Raises Refused."""
    decompressor = zlib.decompressobj(_GZIP)
    while not decompressor.eof:
        piece = data[at : at + _PIECE]
        if not piece:
            raise Refused(400, "bad_body", "gzip that is cut off")
        at += len(piece)
        try:
            unpacked += decompressor.decompress(piece, limit + 1 - len(unpacked))
        except zlib.error as error:
            raise Refused(400, "bad_body", f"no gzip: {error}") from None
        if len(unpacked) > limit:
            raise too_large(limit, "the unpacked body")
    return at - len(decompressor.unused_data)
