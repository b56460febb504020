"""Debug files from debuginfod servers, by build ID, stored in a folder.

A server answers GET /buildid/<hex>/debuginfo with the file, or with 404 (debuginfod(8) of elfutils). By default no
server is asked, because a build ID tells it what runs here.
"""

import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from collector.elf import identity
from icestream.files.disk_cache import DiskCache
from icestream.http.inward_redirects import leads_inward

TIMEOUT_S = 30.0
"""Without a byte from the server, seconds."""
FILE_TIMEOUT_S = 600.0
MISSING_S = 3600.0
"""How long a server's answer that it has no such file is remembered."""
BACKOFF_S = 60.0
"""How long a server that could not be reached is not asked again."""

_BUILD_ID = re.compile(r"gnu:([0-9a-f]{16,128})")
_CHUNK = 1 << 18


class DebuginfodError(RuntimeError):
    """No debug file could be fetched; the message says why."""


def servers(setting: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the URLs in a setting without trailing slashes; for "env" those in DEBUGINFOD_URLS. Raises ValueError if
    one is not an http(s) URL."""
    urls = [url.rstrip("/") for url in (environ.get("DEBUGINFOD_URLS", "") if setting == "env" else setting).split()]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"debuginfod_urls: expected http:// or https:// URLs, got {url!r}")
    return urls


class Debuginfod:
    """For one thread; any thread may call `path`. `limit_bytes` limits all files together, and each one."""

    def __init__(self, urls: Sequence[str], folder: Path, limit_bytes: int) -> None:
        self._urls = urls
        self._files = DiskCache(folder, ".debug", limit_bytes)
        self._missing = DiskCache(folder, ".missing", limit_bytes)
        self._limit = limit_bytes
        self._not_before: dict[str, float] = {}
        # Only HTTP handlers: a redirection must not lead to a file of this host.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(), _OutwardRedirects(),
            urllib.request.HTTPErrorProcessor(),
        ):  # fmt: skip
            self._opener.add_handler(handler)

    def path(self, build_id: str) -> Path | None:
        """Returns the debug file if it was downloaded before."""
        return self._files.use(build_id) if _BUILD_ID.fullmatch(build_id) else None

    def fetch(self, build_id: str) -> Path:
        """Returns the debug file; asks one server after the other if it was not downloaded before. Takes up to minutes.
        Raises DebuginfodError."""
        if not _BUILD_ID.fullmatch(build_id):
            raise DebuginfodError("only GNU build IDs can be asked for")
        if (path := self.path(build_id)) is not None:
            return path
        if _age_s(self._missing.path(build_id)) < MISSING_S:
            raise DebuginfodError("no server has it")
        failures = []
        for url in self._urls:
            try:
                if self._download(url, build_id):
                    return self._files.path(build_id)
            except (OSError, ValueError, http.client.HTTPException) as error:
                failures.append(f"{url}: {_reason(error)}")
        if failures:
            raise DebuginfodError("; ".join(failures))
        self._missing.write(build_id, b"")
        raise DebuginfodError("no server has it")

    def _download(self, url: str, build_id: str) -> bool:
        """Returns False if the server does not have the file. Raises OSError, ValueError and HTTPException."""
        if time.monotonic() < self._not_before.get(url, 0.0):
            raise OSError("it could not be reached a moment ago")
        request = urllib.request.Request(
            f"{url}/buildid/{build_id.removeprefix('gnu:')}/debuginfo",
            headers={"User-Agent": "icestream", "X-DEBUGINFOD-MAXSIZE": str(self._limit)},
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response, self._files.writing(build_id) as file:
                self._receive(response, file)
                file.flush()
                _check(file, build_id)
            return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.NOT_FOUND:
                return False
            self._not_before[url] = time.monotonic() + BACKOFF_S
            raise
        except OSError:
            self._not_before[url] = time.monotonic() + BACKOFF_S
            raise

    def _receive(self, response: Any, file: BinaryIO) -> None:
        """Raises OSError, and ValueError if the file is too large, takes too long or is cut off."""
        deadline = time.monotonic() + FILE_TIMEOUT_S
        expected, size = int(response.headers.get("Content-Length") or 0), 0
        if expected > self._limit:
            raise ValueError(f"the file has {expected} bytes, more than {self._limit}")
        while chunk := response.read1(_CHUNK):
            size += len(chunk)
            if size > self._limit:
                raise ValueError(f"the file has more than {self._limit} bytes")
            if time.monotonic() > deadline:
                raise ValueError(f"the file took more than {FILE_TIMEOUT_S:.0f} s")
            file.write(chunk)
        if size < expected:
            raise ValueError(f"{size} of {expected} bytes came")


class _OutwardRedirects(urllib.request.HTTPRedirectHandler):
    """Raises OSError for other redirects."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        to = urllib.parse.urlsplit(newurl).hostname
        if leads_inward(req.origin_req_host, to):
            raise OSError(f"it redirects to {to}, an address of this machine or of its link")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check(file: BinaryIO, build_id: str) -> None:
    """Raises ValueError if it is not a file with that build ID."""
    received = identity.read_file(file.fileno()).build_id
    if received != build_id:
        raise ValueError(f"the file that came has the build ID {received or 'none'!r}")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
