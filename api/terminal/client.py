"""Asks the API over HTTP, with the standard library only."""

import http.client
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

Body = Mapping[str, Any] | str


class AnswerError(CommandError):
    """The API gave no answer. `status` is 0 if nobody answers at all."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Asks the API at `url`, by default at the variable ICESTREAM_URL, else on this machine."""

    def __init__(self, url: str | None) -> None:
        self._url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        if urllib.parse.urlsplit(self._url).scheme not in ("http", "https"):
            raise CommandError(f"not an HTTP address: {self._url!r}; give --url http://HOST:PORT")

    def read(self, path: str, parameters: Mapping[str, Any], body: Body | None = None) -> bytes:
        """Returns the body of an answer, of POST where the question has a body: JSON, or a text as it is.

        Raises AnswerError with the API's own message.
        """
        present = {name: str(value) for name, value in parameters.items() if value is not None}
        url = f"{self._url}{path}?{urllib.parse.urlencode(present)}"
        text = body if isinstance(body, str) else json.dumps(body)
        data = text.encode(errors="replace") if body is not None else None
        kind = "text/plain" if isinstance(body, str) else "application/json"
        question = urllib.request.Request(url, data, {"Content-Type": kind} if data is not None else {})
        try:
            with urllib.request.urlopen(question, timeout=_TIMEOUT_S) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise AnswerError(error.code, _message(error)) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            hint = "is `icestream up` or `icestream api` running there? Another address: --url http://HOST:PORT"
            raise AnswerError(0, f"no answer from {self._url}: {reason}; {hint}") from None

    def json(self, path: str, parameters: Mapping[str, Any], body: Body | None = None) -> Any:
        """Returns an answer in JSON. Raises CommandError."""
        content = self.read(path, parameters, body)
        try:
            return json.loads(content)
        except ValueError:
            raise CommandError(f"{self._url} does not answer like the icestream API") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        details = json.loads(error.read())["error"]
        return f"{details['message']} ({details['hint']})" if details["hint"] else str(details["message"])
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return f"{error.url.partition('?')[0]}: HTTP {error.code} {error.reason}"
