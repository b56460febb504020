"""Operations: what a service does for its requests, each the name of an entry span."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MANY_OPERATIONS = "[other operations]"
"""Stands for the operations of a service that has too many: names that hold IDs would make one of every request."""

_DAY_S = 86_400.0
_MOST_SERVICES = 1000


@dataclass
class _Service:
    since_s: float
    names: set[int] = field(default_factory=set)  # their hashes: senders choose how long names are


class OperationNames:
    """Keeps the first `limit` operations that a service has within a day, and calls the others `instead`. Knows the
    1,000 services that were used last. For any thread."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic, instead: str = MANY_OPERATIONS) -> None:
        self.replaced = 0  # how often `instead` was the answer
        self._instead = instead
        self._limit = limit
        self._clock = clock
        self._services: dict[str, _Service] = {}
        self._lock = threading.Lock()

    def limited(self, service: str, operation: str, longest: int | None = None) -> str:
        """Returns the operation, or what stands for it; `longest`: of so many characters at most."""
        if not operation:
            return ""
        if longest is not None and len(operation) > longest:
            self.replaced += 1
            return self._instead
        name = hash(operation)
        with self._lock:
            known = self._services.pop(service, None)
            if known is None or self._clock() - known.since_s > _DAY_S:
                if len(self._services) >= _MOST_SERVICES:  # full of other services
                    del self._services[next(iter(self._services))]
                known = _Service(self._clock())
            self._services[service] = known  # the last again: the first is the one that was least recently used
            if name in known.names:
                return operation
            if len(known.names) < self._limit:
                known.names.add(name)
                return operation
            self.replaced += 1
            return self._instead
