"""Bodies of requests: read with a limit of bytes and time, and without their Content-Encoding."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from gateway import metrics
from gateway.errors import Refused, too_large
from gateway.http import content_encoding
from gateway.reading_memory import Reading
from gateway.reading_threads import in_reading_thread
from gateway.settings import GatewaySettings


async def read_body(request: Request, settings: GatewaySettings, reading: Reading) -> bytes:
    """Returns the body, without its Content-Encoding, and counts its memory. Raises Refused."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    content_encoding.check(encoding)
    limit = settings.body_bytes
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large(limit, "the body")
    try:
        async with asyncio.timeout(settings.gateway_body_s):
            body = await _read(request, limit, reading)
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
    if encoding in content_encoding.NONE:
        return body

    def decode() -> bytes:
        decoded = content_encoding.decode(body, encoding, settings.unpacked_bytes)
        reading.hold(len(decoded))
        return decoded

    return await in_reading_thread(decode)


async def _read(request: Request, limit: int, reading: Reading) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large(limit, "the body")
        reading.hold(len(piece))
        pieces.append(piece)
    return b"".join(pieces)
