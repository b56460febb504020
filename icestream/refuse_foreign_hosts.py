"""Refuses requests for other hosts, which a page of a stranger makes by DNS rebinding."""

import ipaddress
import socket
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = ("/healthz", "/readyz", "/metrics")
"""Probes and Prometheus may use any name: these have no profiles."""


class RefuseForeignHosts:
    """Middleware that answers requests only if their Host header names this machine, or is in `allowed`.

    A stranger's name can be made to resolve to this machine; then a browser takes what we answer for the stranger's.
    Addresses cannot: a page has an address as its host only if it came from there.
    """

    def __init__(self, app: ASGIApp, allowed: str, refusal: Callable[[], ASGIApp]) -> None:
        """`allowed`: names, separated by commas; `.example.org` means all names below it, `*` all names. `refusal`
        makes the answer to other requests."""
        self._app = app
        names = {name.strip().lower() for name in allowed.split(",")} - {""}
        self._allowed = {"localhost", ".localhost", socket.gethostname().lower(), *names}
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        answer = self._app if all(map(self._is_allowed, hosts)) else self._refusal()
        await answer(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        name = _name(host)
        suffixes = {name[at:] for at, character in enumerate(name) if character == "."}
        return "*" in self._allowed or name in self._allowed or bool(suffixes & self._allowed) or _is_address(name)


def _name(host: str) -> str:
    """Returns a Host header without its port, brackets and final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
