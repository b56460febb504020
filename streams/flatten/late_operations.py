"""Corrections for samples that were published before their operation was known."""

from collections.abc import Collection
from dataclasses import replace

from streams.flatten.sums import FlatSums, OperationOf, SumsByKey

_LIMIT = 20_000
"""Sums that are kept, those of all trace contexts together."""


class LateOperations:
    """What was published without an operation, by trace context. What came first is forgotten first."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._published: dict[bytes, SumsByKey] = {}

    def correct(self, sums: FlatSums, operation_of: OperationOf) -> list[bytes]:
        """Adds to `sums` what moves values to their operation, where it is known now. Returns the contexts of these
        values, for `published`."""
        known = [context for context in self._published if operation_of(context)]
        for context in known:
            for key, flat_sum in self._published[context].items():
                sums.by_key[key].add(-flat_sum.value, -flat_sum.samples)
                sums.by_key[replace(key, operation=operation_of(context))].add(flat_sum.value, flat_sum.samples)
        return known

    def published(self, sums: FlatSums, corrected: Collection[bytes]) -> None:
        """Says that these sums are published, and with them the corrections of these contexts."""
        for context in corrected:
            self._forget(context)
        for context, new in sums.without_operation.items():
            known = self._published.setdefault(context, new)
            if known is new:
                self._size += len(new)
                continue
            before = len(known)
            for key, flat_sum in new.items():
                known[key].add(flat_sum.value, flat_sum.samples)
            self._size += len(known) - before
        while self._size > self._limit:
            self._forget(next(iter(self._published)))

    def clear(self) -> None:
        self._published.clear()
        self._size = 0

    def _forget(self, context: bytes) -> None:
        self._size -= len(self._published.pop(context))
