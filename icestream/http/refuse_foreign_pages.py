"""Refuses what pages of other sites ask for: a browser lets any page send forms and load images, to any address."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

_PAGE = "/"
"""Any site may send the visitor there."""
_OWN = {b"same-origin", b"none"}
"""Values of the header Sec-Fetch-Site; none: the user made the request."""


class RefuseForeignPages:
    """Middleware that answers only what no page of another site sent, and links of other sites that the user followed.

    Browsers say who sent it in the header Sec-Fetch-Site, or in Origin where they trust the connection less; programs
    say nothing.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str], ASGIApp]) -> None:
        """`refusal` makes the answer to the others of their paths."""
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_foreign = scope["type"] == "http" and _is_of_foreign_page(scope) and not _is_link(scope)
        await (self._refusal(scope["path"]) if is_foreign else self._app)(scope, receive, send)


def _is_of_foreign_page(scope: Scope) -> bool:
    sites, origins, hosts = (_values(scope, name) for name in (b"sec-fetch-site", b"origin", b"host"))
    if sites == {b"same-origin"}:  # a proxy may have changed the host
        return False
    return bool(sites - _OWN) or any({origin.partition(b"://")[2]} != hosts for origin in origins)


def _is_link(scope: Scope) -> bool:
    """Whether the browser shows the answer as a page: of what may take long, only because the user clicked."""
    shown = scope["method"] == "GET" and _values(scope, b"sec-fetch-dest") == {b"document"}
    return shown and (scope["path"] == _PAGE or _values(scope, b"sec-fetch-user") == {b"?1"})


def _values(scope: Scope, header: bytes) -> set[bytes]:
    return {value.lower() for name, value in scope["headers"] if name == header}
