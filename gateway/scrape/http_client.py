"""Asks over HTTP, with the credentials, TLS and redirects that a scrape job is configured with."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
from yarl import URL

from gateway.readers.valid_texts import load_object
from gateway.scrape.job import Http
from icestream.http.inward_redirects import leads_inward
from icestream.version import VERSION

_MAX_REDIRECTS = 3
_READ_OF_ERRORS = 10_000
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"User-Agent": f"icestream/{VERSION}", "Accept-Encoding": "identity"}


class ScrapeError(Exception):
    """A target or a server that lists targets did not answer as expected. `result` is a value of a metric's label,
    `status` the answer's where that was it."""

    def __init__(self, result: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.result = result
        self.status = status


class HttpClient:
    """Asks until `close`. Call it in an event loop."""

    def __init__(self) -> None:
        # One connection for each question: a target is asked rarely, and may have restarted.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),  # callers have their own; aiohttp's five minutes are an interval
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def get(
        self, url: str, http: Http, parameters: Sequence[tuple[str, str]], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Gives the answer, which is 200, with its body unread. `http` may have other values of `headers`. Raises
        ScrapeError, also for errors while the body is read."""
        with _scrape_errors(http):
            first = at = URL(url).extend_query(parameters)
            own = True
            for _ in range(_MAX_REDIRECTS + 1):
                # Credentials are for the server that the job names, and for nobody whom it names.
                own = own and (at.origin() == first.origin() or _is_upgrade(first, at))
                allowed, context = await asyncio.to_thread(_secrets, http, own, at.scheme)
                replaced = {name.lower() for name, _ in allowed}
                ours = [one for one in (headers or {}).items() if one[0].lower() not in replaced]
                async with self._session.get(
                    at,
                    headers=[*ours, *allowed],
                    proxy=http.proxy or None,
                    ssl=context,
                    server_hostname=(http.server_name if own else "") or None,
                    allow_redirects=False,
                ) as answer:
                    if not (http.follow_redirects and answer.status in _REDIRECTS and "Location" in answer.headers):
                        if answer.status != 200:
                            said = f"{answer.status} {answer.reason or ''}".rstrip() + await _message(answer)
                            raise ScrapeError("status", f"it answers {said}", answer.status)
                        yield answer
                        return
                    at = _redirected(at, answer.headers["Location"])
                    await check_not_inward(first, at)
            raise ScrapeError("redirects", f"more than {_MAX_REDIRECTS} redirects")


async def _message(answer: aiohttp.ClientResponse) -> str:
    """Returns what a Kubernetes API server says about the status."""
    if answer.content_type != "application/json":
        return ""
    try:
        return f": {load_object(await answer.content.read(_READ_OF_ERRORS))['message']!s:.300}"
    except (KeyError, ValueError, RecursionError):
        return ""


def _redirected(at: URL, location: str) -> URL:
    """Raises ScrapeError and ValueError."""
    to = at.join(URL(location))
    if to.scheme not in ("http", "https") or not to.host:
        raise ScrapeError("redirects", f"it redirects to {location!r:.100}")
    return to


async def check_not_inward(first: URL, to: URL) -> None:
    """Raises ScrapeError."""
    if await asyncio.to_thread(leads_inward, first.host, to.host):
        raise ScrapeError("redirects", f"it redirects to {to.host}, an address of this machine or of its link")


def _is_upgrade(first: URL, now: URL) -> bool:
    """Whether a server sends us from its HTTP to its HTTPS."""
    return (first.scheme, now.scheme) == ("http", "https") and first.host == now.host


def _secrets(http: Http, own: bool, scheme: str) -> tuple[list[tuple[str, str]], ssl.SSLContext | bool]:
    """Returns headers, and how TLS is done, if it is. Files are read each time, so secrets may change."""
    headers = [*_authorization(http).items(), *_own_headers(http)] if own else []
    return headers, _tls(http, with_certificate=own) if scheme == "https" else True


def _authorization(http: Http) -> dict[str, str]:
    kind, credentials, password = http.authorization_type, http.credentials, http.password
    if http.credentials_file:
        credentials = Path(http.credentials_file).read_text(encoding="utf-8").strip()
    if http.password_file:
        password = Path(http.password_file).read_text(encoding="utf-8").strip()
    if http.username:
        kind, credentials = "Basic", base64.b64encode(f"{http.username}:{password}".encode()).decode()
    return {"Authorization": f"{kind} {credentials}"} if credentials else {}


def _own_headers(http: Http) -> Iterator[tuple[str, str]]:
    for header in http.headers:
        yield header.name, Path(header.value).read_text(encoding="utf-8").strip() if header.is_file else header.value


def _tls(http: Http, with_certificate: bool) -> ssl.SSLContext | bool:
    with_certificate = with_certificate and bool(http.cert_file)
    if not (http.ca_file or with_certificate or not http.verify):
        return True
    with _files(http.ca_file):
        context = ssl.create_default_context(cafile=http.ca_file or None)
    if not http.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if with_certificate:
        with _files(http.cert_file, http.key_file):
            context.load_cert_chain(http.cert_file, http.key_file or None)
    return context


@contextmanager
def _files(*names: str) -> Iterator[None]:
    """Errors of OpenSSL do not name the file."""
    try:
        yield
    except OSError as error:
        raise ScrapeError(
            "tls", f"tls_config: {' and '.join(filter(None, names))}: {error.strerror or error}"
        ) from None


@contextmanager
def _scrape_errors(http: Http) -> Iterator[None]:
    """Turns errors of HTTP and TLS into a ScrapeError that says what happened."""
    try:
        yield
    except TimeoutError:  # the caller's
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise ScrapeError("tls", f"the certificate of {error.host}:{error.port} is not accepted: {why}") from None
    except aiohttp.ClientConnectorSSLError as error:
        raise ScrapeError("tls", f"no TLS with {error.host}:{error.port}: {error.os_error}") from None
    except aiohttp.ClientConnectorError as error:
        raise ScrapeError("unreachable", str(error)) from None
    except aiohttp.ClientConnectionError as error:
        # A server that needs a certificate says so after the handshake, or just goes away.
        maybe = "" if http.cert_file else "; if it needs a client certificate, say which in tls_config"
        raise ScrapeError("unreachable", f"the connection broke: {error}{maybe}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = error.__cause__ if isinstance(error, aiohttp.ClientPayloadError) and error.__cause__ else error
        message = " ".join(str(getattr(cause, "message", "") or cause).split())
        raise ScrapeError("unreachable", f"{message:.300}" or type(cause).__name__) from None
