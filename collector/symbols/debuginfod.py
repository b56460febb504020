"""Debug files from debuginfod servers, by build ID, kept in a folder.

A server answers GET /buildid/<hex>/debuginfo with the file, or with 404 (debuginfod(8) of elfutils). Nothing is asked
unless servers are set: a build ID tells a server what runs here.
"""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector import elf

TIMEOUT_S = 30.0
"""Without a byte from the server."""
FILE_TIMEOUT_S = 600.0
MISSING_S = 3600.0
"""How long an answer that a file is not there holds."""
BACKOFF_S = 60.0
"""How long a server is left alone that could not be reached."""

_BUILD_ID = re.compile(r"gnu:([0-9a-f]{16,128})")
_CHUNK = 1 << 18


class DebuginfodError(RuntimeError):
    """No debug file could be had; the message says why."""


def servers(setting: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The servers that a setting names, without slashes at their ends; "env": those of DEBUGINFOD_URLS. Raises
    ValueError where one is no http(s) URL."""
    urls = [url.rstrip("/") for url in (environ.get("DEBUGINFOD_URLS", "") if setting == "env" else setting).split()]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"debuginfod_urls: expected http:// or https:// URLs, got {url!r}")
    return urls


class Debuginfod:
    """Used by one thread; `path` by any. `limit_bytes`: of the folder, and of every file in it."""

    def __init__(self, urls: Sequence[str], folder: Path, limit_bytes: int) -> None:
        self._urls = urls
        self._folder = folder
        self._limit = limit_bytes
        self._not_before: dict[str, float] = {}
        # Nothing but HTTP: a server's redirection must not lead to a file of this host.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPRedirectHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):  # fmt: skip
            self._opener.add_handler(handler)

    def path(self, build_id: str) -> Path | None:
        """Where the debug file lies that came before; None where none did."""
        path = self._path(build_id, "debug")
        return path if path is not None and path.exists() else None

    def fetch(self, build_id: str) -> Path:
        """The debug file, asked of one server after the other. Takes its time. Raises DebuginfodError."""
        path, missing = self._path(build_id, "debug"), self._path(build_id, "missing")
        if path is None or missing is None:
            raise DebuginfodError("only GNU build IDs can be asked for")
        if path.exists():
            os.utime(path)
            return path
        if _age_s(missing) < MISSING_S:
            raise DebuginfodError("no server has it")
        failures = []
        for url in self._urls:
            try:
                if self._download(url, build_id, path):
                    self._trim(path)
                    return path
            except (OSError, ValueError, http.client.HTTPException) as error:
                failures.append(f"{url}: {_reason(error)}")
        if failures:
            raise DebuginfodError("; ".join(failures))
        self._folder.mkdir(parents=True, exist_ok=True)
        missing.touch()
        self._trim(missing)
        raise DebuginfodError("no server has it")

    def _download(self, url: str, build_id: str, path: Path) -> bool:
        """False where the server says that it has none. Raises OSError, ValueError and HTTPException."""
        if time.monotonic() < self._not_before.get(url, 0.0):
            raise OSError("could not be reached a moment ago")
        request = urllib.request.Request(
            f"{url}/buildid/{build_id.removeprefix('gnu:')}/debuginfo",
            headers={"User-Agent": "icestream", "X-DEBUGINFOD-MAXSIZE": str(self._limit)},
        )
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._receive(response, aside)
            _check(aside, build_id)
            os.replace(aside, path)
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
        finally:
            aside.unlink(missing_ok=True)

    def _receive(self, response: Any, path: Path) -> None:
        """Raises OSError, and ValueError where the file is too large."""
        deadline = time.monotonic() + FILE_TIMEOUT_S
        expected, size = int(response.headers.get("Content-Length") or 0), 0
        if expected > self._limit:
            raise ValueError(f"the file has {expected} bytes, more than {self._limit}")
        with open(path, "wb") as file:
            while chunk := response.read1(_CHUNK):
                size += len(chunk)
                if size > self._limit:
                    raise ValueError(f"the file has more than {self._limit} bytes")
                if time.monotonic() > deadline:
                    raise ValueError(f"the file took more than {FILE_TIMEOUT_S:.0f} s")
                file.write(chunk)
        if size < expected:
            raise ValueError(f"{size} of {expected} bytes came")

    def _path(self, build_id: str, suffix: str) -> Path | None:
        match = _BUILD_ID.fullmatch(build_id)
        return self._folder / f"{match[1]}.{suffix}" if match else None

    def _trim(self, newest: Path) -> None:
        """Deletes the files longest out of use until the folder is within its limit."""
        files = sorted((s.st_mtime, s.st_size, p) for p in self._folder.iterdir() if (s := p.stat()))
        total = sum(size for _, size, _ in files)
        for at, (_, size, path) in enumerate(files):
            if (total <= self._limit and len(files) - at <= 100_000) or path == newest:
                break
            path.unlink(missing_ok=True)
            total -= size


def _check(path: Path, build_id: str) -> None:
    """Raises ValueError where it is not a file with that build ID."""
    with open(path, "rb") as file:
        found = elf.read_file(file.fileno()).build_id
    if found != build_id:
        raise ValueError(f"the file that came has the build ID {found or 'none'!r}")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
