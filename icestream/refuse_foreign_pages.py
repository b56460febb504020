"""Refuses what pages of other sites send: a browser lets any page send a form to any address."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

_READS = ("GET", "HEAD", "OPTIONS")
"""A page of another site may send these, but cannot read the answers."""
_OWN = {b"same-origin", b"none"}
"""Of the header Sec-Fetch-Site; none: the user made the request."""


class RefuseForeignPages:
    """Middleware that answers what changes something, or takes long, only if no page of another site sent it.

    Browsers say who sent it in the header Sec-Fetch-Site, or in Origin where they trust the connection less; programs
    say nothing.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str], ASGIApp]) -> None:
        """`refusal` makes the answer to the others of their paths."""
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_foreign = scope["type"] == "http" and scope["method"] not in _READS and _is_of_foreign_page(scope)
        await (self._refusal(scope["path"]) if is_foreign else self._app)(scope, receive, send)


def _is_of_foreign_page(scope: Scope) -> bool:
    sites, origins, hosts = (
        {value.lower() for name, value in scope["headers"] if name == header}
        for header in (b"sec-fetch-site", b"origin", b"host")
    )
    if sites == {b"same-origin"}:  # a proxy may have changed the host
        return False
    return bool(sites - _OWN) or any({origin.partition(b"://")[2]} != hosts for origin in origins)
