"""Asks the API for names that icestream.stacks no longer has.

Kafka keeps announcements for a while only. A consumer that starts late would never know those of stacks that are not in
use any more.
"""

import http.client
import io
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator
from pathlib import Path

from google.protobuf import proto
from google.protobuf.message import DecodeError

from icestream.files.run_info import running_with
from icestream.messages.checks import BadMessage
from icestream.messages.stacks import StackColumns, decode_stacks
from icestream.settings import variable
from icestream.v1.stacks_pb2 import StackBatch

_AT_ONCE = 200
"""Stacks of one question. With 1,000 deep ones, an answer would have some ten megabytes."""
_TIMEOUT_S = 20.0
_PAUSE_S = 30.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}

_log = logging.getLogger(__name__)


class NoNamesError(Exception):
    """The API did not name stacks; the message says why."""


class NamesApi:
    """For one thread."""

    def __init__(self, url: str, kafka: str | None = None) -> None:
        """`url`: as in NamesSettings; `kafka`: the address of the Kafka whose names these are; None: any."""
        self._given = url.rstrip("/")
        self._kafka = kafka
        self._problem = ""
        self._ask_from = 0.0

    def ask(self, stack_ids: Collection[int]) -> Iterator[StackColumns]:
        """Yields announcements of the stacks that the API knows as a whole. Raises NoNamesError."""
        url, ids = self._url(), sorted(stack_ids)
        for first in range(0, len(ids), _AT_ONCE):
            yield from _ask(url, ids[first : first + _AT_ONCE])

    def try_to_ask(self, stack_ids: Collection[int]) -> Iterator[StackColumns]:
        """As `ask`. Logs why there is no answer when that begins, and then asks again after a pause."""
        if not stack_ids or time.monotonic() < self._ask_from:
            return
        try:
            yield from self.ask(stack_ids)
            self._problem = ""
        except NoNamesError as error:
            self._ask_from = time.monotonic() + _PAUSE_S
            if str(error) != self._problem:
                _log.warning("%s", error)
            self._problem = str(error)

    def _url(self) -> str:
        """Raises NoNamesError."""
        if self._given:
            if urllib.parse.urlsplit(self._given).scheme not in ("http", "https"):
                raise NoNamesError(f"not an HTTP address: {self._given!r}; give --names-url http://HOST:PORT")
            return self._given
        data = os.environ.get(variable("data"))
        info = running_with(self._kafka, Path(data) if data else None)
        if info is None:
            raise NoNamesError(
                "no API is known that has the names which Kafka has deleted: give --names-url http://HOST:PORT "
                f"({variable('names_url')})"
            )
        host, _, port = info.addresses["api"].rpartition(":")
        return f"http://{_ANY_ADDRESS.get(host, host)}:{port}"


def _ask(url: str, stack_ids: Collection[int]) -> Iterator[StackColumns]:
    query = urllib.parse.urlencode({"ids": ",".join(f"{each:016x}" for each in stack_ids), "format": "protobuf"})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/stacks?{query}", timeout=_TIMEOUT_S) as answer:
            data = io.BytesIO(answer.read())
        while message := proto.parse_length_prefixed(StackBatch, data):
            yield decode_stacks(message.SerializeToString())
    except urllib.error.HTTPError as error:
        raise NoNamesError(f"{url} does not name stacks: HTTP {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise NoNamesError(f"no answer from {url}, which is to name stacks: {reason}") from None
    except (ValueError, DecodeError, BadMessage) as error:
        raise NoNamesError(f"{url} does not answer like the icestream API: {error}") from None
