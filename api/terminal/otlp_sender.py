"""Sends OTLP profiles to a receiver over HTTP (opentelemetry.io/docs/specs/otlp)."""

import gzip
import http.client
import logging
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse

from icestream.cli import CommandError

PATH = "/v1development/profiles"

_AGAIN = (429, 502, 503, 504)
"""Answers after which the specification says to send again."""
_MOVED = (301, 302, 303, 307, 308)
_TIMEOUT_S = 30.0
_LONGEST_WAIT_S = 60.0
"""Unless the receiver asks for more."""
_MOST_ANSWER_BYTES = 1_000_000

_log = logging.getLogger(__name__)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes redirects errors: urllib would make a GET without a body of the POST, and send secret headers anywhere."""

    def redirect_request(self, *args: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


@dataclass
class OtlpSender:
    """Sends to one receiver, and counts."""

    url: str
    headers: Mapping[str, str]
    stop: threading.Event
    give_up_s: float
    """How long a batch is sent again before the export ends with an error."""
    sent_bytes: int = 0
    rejected: int = 0  # profiles
    reasons: set[str] = field(default_factory=set)

    def send(self, data: bytes) -> bool:
        """Returns whether the receiver has it; False if it was told to stop before that. Raises CommandError."""
        body = gzip.compress(data, 4)
        deadline, wait_s = time.monotonic() + self.give_up_s, 1.0
        while True:
            error, asked_s = self._try(body)
            if not error:
                self.sent_bytes += len(body)
                return True
            # The same bytes again: a receiver that had them already may recognise them.
            pause_s = max(asked_s, wait_s * random.uniform(0.5, 1))
            if time.monotonic() + pause_s > deadline:
                asked = f"; it asks to wait {asked_s:.0f} s" if asked_s else ""
                raise CommandError(f"{error}{asked}; gave up, as --give-up is {self.give_up_s:g} s")
            _log.warning("%s; sending again in %.1f s", error, pause_s)
            if self.stop.wait(pause_s):
                return False
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _try(self, body: bytes) -> tuple[str, float]:
        """Returns why it must be sent again ("": it need not), and how many seconds the receiver wants to pass before.
        Raises CommandError."""
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", **self.headers}
        request = urllib.request.Request(self.url, body, headers)
        try:
            with _opener.open(request, timeout=_TIMEOUT_S) as answer:
                told = answer.read(_MOST_ANSWER_BYTES + 1)
                if answer.length and len(told) <= _MOST_ANSWER_BYTES:  # there should be more
                    raise http.client.IncompleteRead(told, answer.length)
                self._read(told)
                return "", 0.0
        except urllib.error.HTTPError as error:
            text = f"{self.url} answers {error.code} {error.reason}{_message(error)}"
            if error.code in _MOVED:
                text += (
                    f"; it says {_printable(error.headers.get('Location', ''))!r}: give --endpoint with that address"
                )
            if error.code not in _AGAIN:
                raise CommandError(text) from None
            return text, _seconds(error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            return f"no answer from {self.url}: {getattr(error, 'reason', error)}", 0.0

    def _read(self, body: bytes) -> None:
        try:
            if len(body) > _MOST_ANSWER_BYTES:
                raise DecodeError
            partial = ExportProfilesServiceResponse.FromString(body).partial_success
        except DecodeError:
            raise CommandError(f"{self.url} does not answer like an OTLP receiver") from None
        self.rejected += partial.rejected_profiles
        if partial.error_message and partial.error_message not in self.reasons and len(self.reasons) < 20:
            self.reasons.add(partial.error_message)
            _log.warning("%d profiles rejected: %s", partial.rejected_profiles, partial.error_message[:500])


def endpoint(text: str) -> str:
    """Returns the address of the profiles of a receiver: with OTLP's path, if it has none. Raises CommandError."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise CommandError(f"not an HTTP address: {text!r}; give --endpoint http://HOST:PORT")
    return text if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{PATH}"


def _seconds(retry_after: str | None) -> float:
    """Returns the seconds that a Retry-After asks for; 0 for a date, which is not read."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0


def _message(error: urllib.error.HTTPError) -> str:
    """The printable text of a google.rpc.Status, or of whatever it is."""
    try:
        text = _printable(error.read(2000).decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return ""
    return f": {text}" if text else ""


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and c != "\ufffd").strip()[:300]
