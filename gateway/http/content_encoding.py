"""Bodies without their Content-Encoding, with a limit of what they may become.

These are the encodings that OpenTelemetry's exporters offer. Their `deflate` is zlib's format, as HTTP has it.
"""

from collections.abc import Callable

import cramjam
import numpy as np

from gateway.errors import Refused, too_large, unsupported
from gateway.unpack import unpack

NONE = ("", "identity")
"""Content-Encodings of bodies that are not encoded."""

_DECODERS: dict[str, Callable[[bytes, memoryview], int]] = {
    "zstd": cramjam.zstd.decompress_into,
    "snappy": cramjam.snappy.decompress_raw_into,
    "x-snappy-framed": cramjam.snappy.decompress_into,
    "lz4": cramjam.lz4.decompress_into,
    "deflate": cramjam.zlib.decompress_into,
    "zlib": cramjam.zlib.decompress_into,
}
_TOO_LARGE = ("failed to write whole buffer", "is smaller than required")
"""What decoders say if the content is larger than the buffer."""


def check(encoding: str) -> None:
    """Raises Refused if `decode` does not know the encoding."""
    if encoding not in (*NONE, "gzip", *_DECODERS):
        raise unsupported(
            f"Content-Encoding {encoding[:40]!r} is not read", "send gzip, zstd, snappy, deflate, or none"
        )


def decode(data: bytes, encoding: str, limit: int) -> bytes:
    """`encoding` is not one of NONE. Never makes more than `limit` bytes. Raises Refused.

    May take a second, so event loops call it in a thread.
    """
    if encoding == "gzip":
        return unpack(data, limit)
    content = np.empty(limit, np.uint8).data  # unlike a bytearray, takes memory only as far as it is written
    try:
        size = _DECODERS[encoding](data, content)
    except cramjam.DecompressionError as error:
        if any(text in str(error) for text in _TOO_LARGE):
            raise too_large(limit, "the unpacked body") from None
        raise Refused(400, "bad_body", f"no {encoding}: {error}") from None
    return bytes(content[:size])
