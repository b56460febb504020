"""Refuses requests for other hosts, which a page of a stranger makes by DNS rebinding."""

import logging
import socket
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from icestream.http.allowed_hosts import allowed_hosts, is_address
from icestream.settings import variable

_OPEN = ("/healthz", "/readyz", "/metrics")
"""Probes and Prometheus may use any name: these have no profiles."""
_MOST_LOGGED = 20
"""Different names that are logged: a stranger chooses them."""

_log = logging.getLogger(__name__)


class RefuseForeignHosts:
    """Middleware that answers requests only if their Host header names this machine, or is in `allowed`.

    A stranger's name can be made to resolve to this machine; then a browser takes what we answer for the stranger's.
    Addresses cannot: a page has an address as its host only if it came from there.
    """

    def __init__(self, app: ASGIApp, setting: str, allowed: str, refusal: Callable[[str], ASGIApp]) -> None:
        """`allowed` is the text of `setting` (icestream.http.allowed_hosts). `refusal` makes the answer to other
        requests of their paths. Raises SettingError."""
        self._app = app
        self._setting = setting
        self._allowed = {"localhost", ".localhost", socket.gethostname().lower(), *allowed_hosts(setting, allowed)}
        self._refusal = refusal
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        foreign = [host for host in hosts if not self._is_allowed(host)]
        if foreign:
            self._log_once(_name(foreign[0])[:100])
        answer = self._refusal(scope["path"]) if foreign else self._app
        await answer(scope, receive, send)

    def _log_once(self, name: str) -> None:
        """Logs each name once: clients may have used it before names were looked at."""
        if name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            _log.warning(
                "refused a request for the host %r; if it is this machine, add it to %s", name, variable(self._setting)
            )

    def _is_allowed(self, host: str) -> bool:
        name = _name(host)
        suffixes = {name[at:] for at, character in enumerate(name) if character == "."}
        return "*" in self._allowed or name in self._allowed or bool(suffixes & self._allowed) or is_address(name)


def _name(host: str) -> str:
    """Returns a Host header without its port, brackets and final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")
