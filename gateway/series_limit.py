"""How many different series a service may have in an hour: a label with a new value each time makes a series of each
profile, and a series stays in the tables for as long as anything refers to it."""

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
"""The most services and series together: each takes up to 130 bytes of memory."""


class SeriesLimit:
    """Keeps the first `of_service` series of a service in an hour; others keep only the label of their service. All
    services together have at most 500,000 series; beyond that, new services become OTHER_SERVICES. For any thread.

    No other label is kept, because any of them may be the one that makes so many series. So gauges of several instances
    are averaged there, as everywhere where labels are equal."""

    def __init__(self, of_service: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = of_service
        self._clock = clock
        self._hour = 0.0
        self._series: set[int] = set()  # hashes of labels
        self._of_service: dict[int, int] = {}  # how many series a service has, by the hash of its name
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
            self._hour = hour
            self._series.clear()
            self._of_service.clear()

    def _keep(self, labels: Labels) -> Labels:
        service = dict(labels).get("service", "")
        name, series = hash(service), hash(labels)
        if series in self._series:
            return labels
        if name not in self._of_service:
            if self._is_full():
                return (("service", OTHER_SERVICES),)
            self._of_service[name] = 0
        if self._of_service[name] >= self._limit or self._is_full():
            return (("service", service),)
        self._series.add(series)
        self._of_service[name] += 1
        return labels

    def _is_full(self) -> bool:
        return len(self._series) + len(self._of_service) >= _MOST
