"""Asks the API again while it is away or busy, for commands that run for long."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from api.terminal.client import AnswerError, Body, Client

_AGAIN = (0, 429, 502, 503, 504)
_AGAIN_S = 2.0
_FINISH_S = 10.0
"""How long a command goes on asking after it was told to stop, to finish what is quickly done."""

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The command was told to stop, and what it does at the moment would take long."""


class PatientClient(Client):
    """Asks the API at `url` each question for `give_up_s` at most, until `stop` is set."""

    def __init__(self, url: str | None, stop: threading.Event, give_up_s: float) -> None:
        super().__init__(url)
        self._stop = stop
        self._give_up_s = give_up_s
        self._finish_by: float | None = None

    def read(self, path: str, parameters: Mapping[str, Any], body: Body | None = None) -> bytes:
        """As a Client does. Raises AnswerError and Stopped."""
        self._check_stop()
        give_up_at, warned = time.monotonic() + self._give_up_s, False
        while True:
            try:
                return super().read(path, parameters, body)
            except AnswerError as error:
                if error.status not in _AGAIN:
                    raise
                if time.monotonic() + _AGAIN_S > give_up_at:
                    text = f"{error}; gave up after {self._give_up_s:.0f} s (--give-up)"
                    raise AnswerError(error.status, text) from None
                if not warned:
                    _log.warning("%s; asking again", error)
                warned = True
            if self._stop.wait(_AGAIN_S):
                raise Stopped

    def _check_stop(self) -> None:
        if self._stop.is_set():
            self._finish_by = self._finish_by or time.monotonic() + _FINISH_S
            if time.monotonic() > self._finish_by:
                raise Stopped
