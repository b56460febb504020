"""Bounds how many operations a service has: names that hold IDs would make one of every request."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from icestream.operations import MANY_OPERATIONS

_DAY_S = 86_400.0
_MOST_SERVICES = 1000


@dataclass
class _Service:
    since_s: float
    names: set[str] = field(default_factory=set)


class OperationNames:
    """Keeps the first `limit` operations that a service has within a day, and calls the others MANY_OPERATIONS."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.replaced = 0  # operations of contexts and of entry spans
        self._limit = limit
        self._clock = clock
        self._services: dict[str, _Service] = {}

    def of(self, service: str, operation: str) -> str:
        """Returns the operation, or what stands for it."""
        if not operation:
            return ""
        known = self._services.get(service)
        if known is None or self._clock() - known.since_s > _DAY_S:
            if known is None and len(self._services) >= _MOST_SERVICES:
                del self._services[next(iter(self._services))]
            known = self._services[service] = _Service(self._clock())
        if operation in known.names:
            return operation
        if len(known.names) < self._limit:
            known.names.add(operation)
            return operation
        self.replaced += 1
        return MANY_OPERATIONS
