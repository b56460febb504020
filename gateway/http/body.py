"""Bodies of requests: read with a limit of bytes and time, and decompressed with a limit."""

import asyncio
import zlib

from starlette.requests import ClientDisconnect, Request

from gateway import metrics
from gateway.errors import Refused, too_large
from gateway.settings import GatewaySettings

MB = 10**6
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's window bits that mean gzip


async def read_body(request: Request, settings: GatewaySettings) -> bytes:
    """Returns the body, without its Content-Encoding. Raises Refused."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip"):
        raise Refused(415, "unsupported", f"Content-Encoding {encoding[:40]!r} is not read", "send gzip, or none")
    limit = settings.gateway_body_mb * MB
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large(limit, "the body")
    try:
        async with asyncio.timeout(settings.gateway_body_s):
            body = await _read(request, limit)
    except TimeoutError:
        raise Refused(
            408,
            "too_slow",
            f"the body did not come within {settings.gateway_body_s:g} s",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:
        raise Refused(400, "bad_body", "the sender went away before its body was complete") from None
    route = getattr(request.scope.get("route"), "path_format", "")
    metrics.BODY_BYTES.labels(route).inc(len(body))
    return unpack(body, settings.gateway_unpacked_mb * MB) if encoding == "gzip" else body


async def _read(request: Request, limit: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large(limit, "the body")
        pieces.append(piece)
    return b"".join(pieces)


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
