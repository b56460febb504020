"""Work that sinks do beside their messages, again and again, in a thread of its own."""

import logging
import threading
from collections.abc import Callable

from icestream.clickhouse import Clients
from sinks import metrics

_PAUSE_S = 20.0
log = logging.getLogger(__name__)


def repeat(name: str, step: Callable[[threading.Event], None], clients: Clients, stop: threading.Event) -> None:
    """Calls `step` every 20 seconds until `stop` is set. After an error, the next call tries again."""
    while not stop.wait(_PAUSE_S):
        try:
            step(stop)
        except Exception as error:
            note_failure(name, clients, error)
    clients.discard()


def note_failure(name: str, clients: Clients, error: Exception) -> None:
    """Logs and counts an error. The next statement gets a new client."""
    clients.discard()
    metrics.FAILURES.labels(name).inc()
    log.error("%s: %s", name, error)
