"""Reads bodies of requests up to a limit."""

from fastapi import Request

from api.errors import too_large


async def limited_body(request: Request, most_bytes: int, what: str, hint: str) -> bytes:
    """Raises ApiError, which says that `what` has more bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise too_large(f"{what} has more than {most_bytes} bytes", hint)
    return bytes(body)
