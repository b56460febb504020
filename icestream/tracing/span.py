"""Spans by hand, for applications that do not use OpenTelemetry."""

import itertools
import os
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from icestream.tracing.asyncio_hook import followed
from icestream.tracing.threads import ENTRY, ERROR, Context, context_of_task, limits, local, this_thread, unless_ended

MOST_NAME = 256
"""Characters of a name that are kept."""

_FLAGS = b"\x01\x01\x00\x00"
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)


def _span_ids() -> Iterator[bytes]:
    """Makes span IDs that no other process is likely to make: they count from a random number."""
    return map(struct.Struct("<Q").pack, itertools.count(1 + (int.from_bytes(os.urandom(8), "big") >> 1)))


_ids = _span_ids()


class span(Context):
    """What runs in the `with` block works for this trace and span.

    IDs have 32 and 16 hexadecimal digits; others raise ValueError. A missing span ID is made (attribute `span_id`).
    The parent is the enclosing span of the same trace, else `parent_id`: the span of the process that sent the request.
    An exception that leaves the block marks the span with an error.
    It works in coroutines too (`with` or `async with`): a task keeps its span while others run. Use each object once.
    """

    __slots__ = ("_above", "_outer", "_parent", "_span", "_start", "_trace", "name")

    # A request may enter thousands of spans a second, so this takes few steps and calls (`benchmarks/tracing.py`).
    def __init__(self, trace_id: str, span_id: str | None = None, name: str = "", parent_id: str | None = None) -> None:
        trace = self._trace = _identifier(trace_id, _NO_TRACE, "trace_id")
        own = self._span = next(_ids) if span_id is None else _identifier(span_id, _NO_SPAN, "span_id")
        self._parent = b"" if parent_id is None else _identifier(parent_id, _NO_SPAN, "parent_id")
        self.record = trace + own + _FLAGS
        self.name = name
        self.outermost = None
        self.open = False

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self._trace.hex()

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return self._span.hex()

    def __enter__(self) -> Self:
        if limits.rows:
            above = self._above = context_of_task.get()
            if above is not None and above.record[:16] == self._trace:
                self._parent = above.record[16:24]
                self.entry_span_id, self.entry_name = above.entry_span_id, above.operation
                if not above.ended:
                    self.outermost = above.outermost or above
            else:
                self.entry_span_id, self.entry_name = self._span, str(self.name)[:MOST_NAME]
            self.open = True
            context_of_task.set(self)
            thread = local.thread or this_thread()
            # The thread may be in another context than the one above: `contextvars.Context.run` changes that alone.
            self._outer = thread.context
            self._start = thread.switch(self if followed() else None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.open:
            return
        self.open = False
        above = unended = self._above
        if above is not None and above.ended:
            unended = None
        # A generator may be closed in another task or thread than it was entered in, or after another generator began.
        if context_of_task.get() is self:
            context_of_task.set(unended)
        thread = local.thread or this_thread()
        current = thread.context
        if current is self or (current is not None and current.ended):
            end = thread.switch(unended if self._outer is above else unless_ended(self._outer))
        else:
            end = time.monotonic_ns()
        self._above = self._outer = None  # else spans that begin in a span before them keep all of these
        if len(thread.spans) < limits.spans:  # as Thread.end_span, without a call
            flags = ENTRY if self.entry_span_id == self._span else 0
            if kind is not None and issubclass(kind, Exception):  # not if a task is cancelled, or a generator closed
                flags |= ERROR
            name = str(self.name)[:MOST_NAME]  # applications pass None where they have no name
            thread.spans.append((self._trace, self._span, self._parent, name, self._start, end, flags))
        elif limits.spans:
            thread.dropped_spans += 1

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def forked() -> None:
    """Makes the child of a fork continue with IDs from another start."""
    global _ids
    _ids = _span_ids()


def _identifier(text: str, zeros: bytes, what: str) -> bytes:
    """`zeros`: the ID that means none; an ID has as many bytes. Raises ValueError."""
    try:
        value = bytes.fromhex(text)
    except (ValueError, TypeError):
        value = b""
    size = len(zeros)
    if len(value) != size or len(text) != 2 * size or value == zeros:
        raise ValueError(f"{what}: expected {2 * size} hexadecimal digits, not all zero, got {text!r:.80}")
    return value
