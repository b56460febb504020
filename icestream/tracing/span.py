"""Spans by hand, for applications that do not use OpenTelemetry."""

import itertools
import os
import struct
import time
from collections.abc import Iterator
from sys import modules
from types import TracebackType
from typing import Self

from icestream.tracing import asyncio_hook
from icestream.tracing.threads import (
    ENTRY,
    ERROR,
    MOST_NAME,
    Context,
    context_of_task,
    limits,
    local,
    name_of,
    this_thread,
    unless_ended,
)

_FLAGS = bytes.fromhex("01010000")
_NO_TRACE, _NO_SPAN = 32 * "0", 16 * "0"
_from_hex, _new = bytes.fromhex, object.__new__


def _span_ids() -> Iterator[bytes]:
    """Makes ends of records, with span IDs that no other process is likely to make: they count from a random number."""
    first = 1 + (int.from_bytes(os.urandom(8), "big") >> 1)
    return map(struct.Struct("<Q4s").pack, itertools.count(first), itertools.repeat(_FLAGS))


_ids = _span_ids()


class Span(Context):
    """What `span` returns."""

    __slots__ = ("_above", "_name", "_outer", "_parent", "_start")

    _name: str
    _parent: bytes

    @property
    def name(self) -> str:
        """An application may set it. It is cut to MOST_NAME characters."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name_of(name)

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.record[:16].hex()

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return self.record[16:24].hex()

    @property
    def operation(self) -> str:
        """The entry span's name."""
        return self._name if self.entry is None else self.entry.operation

    def __enter__(self) -> Self:
        if limits.rows and not self.open:  # else it would be above itself
            above = self._above = context_of_task.get()
            self.entry = self.outermost = None
            if above is not None and above.record[:16] == self.record[:16]:
                entry = above.entry or above
                if entry is not self:  # used again in what it began
                    self.entry, self._parent = entry, above.record[16:24]
                    if not above.ended:
                        self.outermost = above.outermost or above
            self.open = True
            context_of_task.set(self)
            thread = local.thread or this_thread()
            # The thread may be in another context than the one above: `contextvars.Context.run` changes that alone.
            self._outer = thread.context
            # No loop runs: as `followed`, without a call.
            shows = (asyncio_hook.running_loop() is None and "trio.lowlevel" not in modules) or asyncio_hook.followed()
            self._start = thread.switch(self if shows else None)
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
        flags = ENTRY if self.entry is None else 0
        if kind is not None and issubclass(kind, Exception):  # not if a task is cancelled, or a generator closed
            flags |= ERROR
        spans = thread.spans  # as Thread.end_span, without a call
        if len(spans) < limits.spans:
            spans.append((self.record, self._parent, self._name, self._start, end, flags))
        elif limits.spans:
            thread.dropped_spans += 1

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


# A request may enter thousands of spans a second, so this and the methods above take few steps and calls. Filling an
# object here costs less than `Span.__init__` would (`benchmarks/tracing.py`).
def span(trace_id: str, span_id: str | None = None, name: str = "", parent_id: str | None = None) -> Span:
    """What runs in the `with` block of the returned span works for this trace and span.

    IDs have 32 and 16 hexadecimal digits; others raise ValueError. A missing span ID is made (attribute `span_id`).
    The parent is the enclosing span of the same trace, else `parent_id`: the span of the process that sent the request.
    An exception that leaves the block marks the span with an error.
    It works in coroutines too (`with` or `async with`): a task keeps its span while others run. Use each object once.
    """
    try:
        if span_id is None:
            record = _from_hex(trace_id) + next(_ids)
        else:
            record = _from_hex(f"{trace_id}{span_id}01010000") if len(span_id) == 16 else b""
        if len(record) != 28 or len(trace_id) != 32 or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            raise ValueError
    except (ValueError, TypeError):  # mostly wrong, but for example members of an enumeration of strings may be right
        record = _identifier(trace_id, _NO_TRACE, "trace_id")
        record += next(_ids) if span_id is None else _identifier(span_id, _NO_SPAN, "span_id") + _FLAGS
    made = _new(Span)
    made.record = record
    made._name = name if name.__class__ is str and len(name) <= MOST_NAME else name_of(name)
    made._parent = b"" if parent_id is None else _identifier(parent_id, _NO_SPAN, "parent_id")
    made.open = False
    return made


def forked() -> None:
    """Makes the child of a fork continue with IDs from another start."""
    global _ids
    _ids = _span_ids()


def _identifier(text: str, zeros: str, what: str) -> bytes:
    """`zeros`: the ID that means none; an ID has as many digits. Raises ValueError."""
    try:
        value = _from_hex(text)
    except (ValueError, TypeError):
        value = b""
    if 2 * len(value) != len(zeros) or len(text) != len(zeros) or text == zeros:
        raise ValueError(f"{what}: expected {len(zeros)} hexadecimal digits, not all zero, got {text!r:.80}")
    return value
