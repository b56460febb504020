"""Work that sinks do beside their messages, again and again, in a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable

from icestream.clickhouse.client import Clients
from sinks import metrics

_PAUSE_S = 20.0
_LONG_S = 5.0
log = logging.getLogger(__name__)


def repeat(name: str, step: Callable[[threading.Event], None], clients: Clients, stop: threading.Event) -> None:
    """Calls `step` every minute until `stop` is set, and 20 seconds after a step that took long, which may have left
    more to do. After an error, the next call tries again, also in 20 seconds.

    A step that finds nothing to do takes 0.2 CPU seconds."""
    pause_s = _PAUSE_S
    while not stop.wait(pause_s):
        started = time.monotonic()
        try:
            step(stop)
            pause_s = _PAUSE_S if time.monotonic() - started > _LONG_S else 3 * _PAUSE_S
        except Exception as error:
            pause_s = _PAUSE_S
            note_failure(name, clients, error)
    clients.discard()


def note_failure(name: str, clients: Clients, error: Exception) -> None:
    """Logs and counts an error. The next statement gets a new client."""
    clients.discard()
    metrics.FAILURES.labels(name).inc()
    log.error("%s: %s", name, error)
