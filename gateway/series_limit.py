"""How many different series a service may have in an hour: labels whose values are never the same make one of each
profile, and each is kept in tables for as long as anything refers to it."""

import dataclasses
import threading
import time
from collections.abc import Callable

import numpy as np

from icestream.messages.checks import Labels
from icestream.messages.raw_encoder import Window

OTHER_SERVICES = "[other services]"
"""Stands for services that come after too many others."""

_HOUR_S = 3600.0
_MOST = 500_000
"""Series of all services: each takes 100 bytes of memory."""


class SeriesLimit:
    """Keeps the first `of_service` series of a service in an hour; others keep only their service. All services
    together have at most 500,000; then services that are new are one. For any thread."""

    def __init__(self, of_service: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = of_service
        self._clock = clock
        self._hour = 0.0
        self._count = 0
        self._known: dict[str, set[int]] = {}  # hashes of series by their service
        self._lock = threading.Lock()

    def apply(self, window: Window) -> tuple[Window, int]:
        """Returns a window whose series are within the limit, and how many of its samples lost labels."""
        with self._lock:
            self._forget()
            kept = [self._keep(labels) for labels in window.labels]
        lost = np.array([now != before for now, before in zip(kept, window.labels, strict=True)], bool)
        if not lost.any():
            return window, 0
        row_of = {labels: row for row, labels in enumerate(dict.fromkeys(kept))}
        rows = np.array([row_of[labels] for labels in kept], np.int64)
        limited = dataclasses.replace(window, labels=list(row_of), series=rows[window.series])
        return limited, int(lost[window.series].sum())

    def _forget(self) -> None:
        hour = self._clock() // _HOUR_S
        if hour != self._hour:
            self._hour, self._count = hour, 0
            self._known.clear()

    def _keep(self, labels: Labels) -> Labels:
        service = dict(labels).get("service", "")
        known = self._known.get(service)
        if known is None:
            if self._count >= _MOST:
                return (("service", OTHER_SERVICES),)
            known = self._known[service] = set()
            self._count += 1
        series = hash(labels)
        if series not in known:
            if len(known) >= self._limit or self._count >= _MOST:
                return (("service", service),)
            known.add(series)
            self._count += 1
        return labels
