"""The Content-Type of requests."""

from collections.abc import Sequence

from starlette.requests import Request

from gateway.errors import unsupported


def content_type(request: Request, allowed: Sequence[str]) -> str:
    """Returns the type, in lower case and without parameters; empty if there is none. Raises Refused if it is not one
    of `allowed`; the hint names the first two."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        raise unsupported(f"Content-Type {kind[:60]!r} is not read", f"send {' or '.join(allowed[:2])}")
    return kind
