"""Asks a target for a profile, with limits of bytes, time and redirects."""

import asyncio
import base64
import ssl
from pathlib import Path

import aiohttp

from gateway import metrics
from gateway.http.body import MB
from gateway.scrape.discovery import Target
from gateway.scrape.job import Http, ProfilePath, ScrapeJob
from gateway.settings import GatewaySettings
from icestream import __version__

_MAX_REDIRECTS = 3
_SMALL = 1 << 16
"""Bytes of an answer that are read without a place among those that are read at once, as the connection holds as many
anyway: targets that send a little at a time take no places from others."""
_HEADERS = {"User-Agent": f"icestream/{__version__}", "Accept-Encoding": "identity"}


class ScrapeError(Exception):
    """A target gave no profile. `result` is the value of a metric's label."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result


class Fetcher:
    """Asks the targets of one job, until `close`. Call it in an event loop."""

    def __init__(self, job: ScrapeJob, settings: GatewaySettings, reading: asyncio.Semaphore) -> None:
        """`reading` limits how many answers are read at once, in all jobs."""
        self._job = job
        self._limit = settings.gateway_body_mb * MB
        self._reading = reading
        # One connection for each question: a target is asked rarely, and may have restarted.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),  # `fetch` has its own; aiohttp's five minutes are an interval
        )

    async def close(self) -> None:
        await self._session.close()

    async def fetch(self, target: Target, profile: ProfilePath) -> bytes:
        """Returns the profile as the target sent it. Raises ScrapeError."""
        seconds = self._job.seconds if profile.delta else 0
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds + self._job.timeout_s):
                return await self._ask(target, profile, {"seconds": str(seconds)} if seconds else {})
        except TimeoutError:
            took = asyncio.get_running_loop().time() - started
            raise ScrapeError("timeout", f"no complete answer within {took:.1f} s") from None
        except aiohttp.TooManyRedirects:
            raise ScrapeError("redirects", f"more than {_MAX_REDIRECTS} redirects") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScrapeError("unreachable", str(error) or type(error).__name__) from None
        finally:
            took = asyncio.get_running_loop().time() - started
            metrics.SCRAPE_SECONDS.labels(self._job.name).observe(max(0.0, took - seconds))

    async def _ask(self, target: Target, profile: ProfilePath, parameters: dict[str, str]) -> bytes:
        http = self._job.http
        headers, tls = await asyncio.to_thread(_secrets, http)
        async with self._session.get(
            f"{target.base}{http.path_prefix}{profile.path}",
            params=parameters,
            headers=headers,
            ssl=tls,
            server_hostname=http.server_name or None,
            allow_redirects=http.follow_redirects,
            max_redirects=_MAX_REDIRECTS,
        ) as answer:
            if answer.status != 200:
                raise ScrapeError("status", f"it answers {answer.status} {answer.reason or ''}".rstrip())
            body = bytearray()
            if not await self._read(answer, body, _SMALL):
                async with self._reading, asyncio.timeout(self._job.timeout_s):
                    await self._read(answer, body, self._limit + 1)
            return bytes(body)

    async def _read(self, answer: aiohttp.ClientResponse, body: bytearray, size: int) -> bool:
        """Adds to the body until it has this many bytes; returns whether it is complete before that."""
        while len(body) < size:
            piece = await answer.content.readany()
            if not piece:
                return True
            body += piece
            metrics.SCRAPE_BYTES.labels(self._job.name).inc(len(piece))
            if len(body) > self._limit:
                raise ScrapeError("too_large", f"its profile has more than {self._limit} bytes")
        return False


def _secrets(http: Http) -> tuple[dict[str, str], ssl.SSLContext | bool]:
    """Returns headers, and how TLS is done. Raises OSError and ValueError."""
    headers = {}
    kind, credentials = http.authorization
    if http.credentials_file:
        credentials = Path(http.credentials_file).read_text(encoding="utf-8").strip()
    user, password = http.basic
    if http.password_file:
        password = Path(http.password_file).read_text(encoding="utf-8").strip()
    if user:
        kind, credentials = "Basic", base64.b64encode(f"{user}:{password}".encode()).decode()
    if credentials:
        headers["Authorization"] = f"{kind} {credentials}"
    if http.scheme != "https" or not (http.ca_file or http.cert_file or not http.verify):
        return headers, True
    context = ssl.create_default_context(cafile=http.ca_file or None)
    if not http.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if http.cert_file:
        context.load_cert_chain(http.cert_file, http.key_file or None)
    return headers, context
