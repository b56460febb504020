"""Gzip of senders, with a limit of what it may become."""

import zlib

from gateway.errors import Refused, too_large

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's window bits that mean gzip


def unpack(data: bytes, limit: int) -> bytes:
    """Returns data without gzip where it has it; never makes more than `limit` bytes. Raises Refused."""
    unpacked = bytearray()
    while data.startswith(_GZIP_MAGIC) and len(unpacked) <= limit:
        decompressor = zlib.decompressobj(_GZIP)
        try:
            unpacked += decompressor.decompress(data, limit + 1 - len(unpacked))
        except zlib.error as error:
            raise Refused(400, "bad_body", f"no gzip: {error}") from None
        if len(unpacked) <= limit and not decompressor.eof:
            raise Refused(400, "bad_body", "gzip that is cut off")
        data = decompressor.unused_data  # gzip may have several members
        if not data.startswith(_GZIP_MAGIC):
            break
    else:
        if not unpacked:
            if len(data) > limit:
                raise too_large(limit, "the profile")
            return data
    if len(unpacked) > limit:
        raise too_large(limit, "the unpacked body")
    return bytes(unpacked)
