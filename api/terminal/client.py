"""Asks the API over HTTP, with the standard library."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from icestream.cli import CommandError
from icestream.settings import PREFIX

DEFAULT_URL = "http://127.0.0.1:4060"
URL_VARIABLE = f"{PREFIX}URL"
_TIMEOUT_S = 60


class Client:
    """Of the API at `url`, else of the variable ICESTREAM_URL, else of this machine."""

    def __init__(self, url: str | None) -> None:
        self._url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        if urllib.parse.urlsplit(self._url).scheme not in ("http", "https"):
            raise CommandError(f"not an address: {self._url!r}; give --url http://HOST:PORT")

    def read(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        """The body of an answer. Raises CommandError with what the API says is wrong."""
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        url = f"{self._url}{path}?{urllib.parse.urlencode(given)}"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise CommandError(_said(error)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            hint = "is `icestream up` or `icestream api` running there? Another address: --url http://HOST:PORT"
            raise CommandError(f"no answer from {self._url}: {reason}; {hint}") from None

    def json(self, path: str, parameters: Mapping[str, Any]) -> Any:
        body = self.read(path, parameters)
        try:
            return json.loads(body)
        except ValueError:
            raise CommandError(f"{self._url} does not answer as the icestream API does") from None


def _said(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read())["error"]
        return f"{said['message']} ({said['hint']})" if said["hint"] else str(said["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.url.partition('?')[0]}: HTTP {error.code} {error.reason}"
