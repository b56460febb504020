"""Which context each thread is in, and the intervals this gives.

An interval is one thread in one context: its rows are (context, start, CPU clock at start, end, CPU clock at end), both
clocks in ns.

The owning thread alone changes its state, in `switch`, without a lock. The thread that sends reads beside it: it takes
finished rows away, and cuts the open one by noting how far it has sent it. What the owner records later is trimmed to
the rest, so intervals of a thread never overlap and their CPU times add up to what the clock says.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

_T = TypeVar("_T")


class Context:
    """What a thread works for: one span of a request."""

    __slots__ = ("entry", "open", "outermost", "record")

    def __init__(self, record: bytes) -> None:
        self.record = record
        """What profilers read (record.py): 16 bytes of the trace ID, 8 of the span ID, 4 more."""
        self.entry: Context | None = None
        """The context of the first span of the request in this process; None: it is this one."""
        self.outermost: Context | None = None
        """The context of the request that this one is within; None: it is within no other one."""
        self.open = True
        """Whether its span was entered and not left."""

    @property
    def entry_span_id(self) -> bytes:
        """ID of the entry span; b"": not known."""
        return self.record[16:24] if self.entry is None else self.entry.entry_span_id

    @property
    def operation(self) -> str:
        """Name of the entry span when its activity is sent; "": not known."""
        return "" if self.entry is None else self.entry.operation

    @property
    def ended(self) -> bool:
        """Whether its request has ended: the span of the outermost context was left.

        Python goes on to hand an ended context to callbacks of a connection that the request opened, for example.
        """
        return not self.open if self.outermost is None else self.outermost.ended


def unless_ended(context: "Context | None") -> "Context | None":
    """Returns the context, or None if its request has ended."""
    return None if context is None or context.ended else context


Open = tuple[Context, int, int]
"""Context, monotonic clock and thread CPU clock at its start."""

SpanEnd = tuple[bytes, bytes, str, int, int, int]
"""Record (24 bytes or more), parent's span ID (b"": none), name, start and end in ns of the monotonic clock, flags."""
ENTRY, ERROR = 1, 2
"""Flags of a span: it is an entry span; it ended with an error."""

WIDTH = 5
MOST_INTERVALS = 20_000
"""In a thread, between two flushes; all threads together keep no more than ALL_INTERVALS."""
ALL_INTERVALS = 200_000
MOST_SPANS = 10_000
FEWEST = 100
MOST_NAME = 256
"""Characters of a name that are kept."""

context_of_task: ContextVar[Context | None] = ContextVar("icestream_context", default=None)
"""The context that the running code belongs to; asyncio gives every task its own."""

_SWITCHING: Open = (Context(b""), 0, 0)
"""Held in place of the open interval while it changes."""

_monotonic_ns, _thread_time_ns = time.monotonic_ns, time.thread_time_ns


class Local(threading.local):
    """What belongs to one thread."""

    thread: "Thread | None" = None
    guard: "_Guard | None" = None


class _Limits:
    """Limits of the buffers; zero while tracing is off."""

    __slots__ = ("rows", "spans", "wake")

    def __init__(self) -> None:
        self.rows = self.wake = self.spans = 0


limits = _Limits()


def name_of(value: object) -> str:
    """Returns what is kept of a name: a string that is safe to send, whatever the application gave.

    Applications pass None where they have no name, for example. A slice is a `str`, never of a class derived from it.
    """
    return str(value)[:MOST_NAME]


class Registry:
    """All threads that were in a context, and how a new one gets its slot."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads: list[Thread] = []
        self.slot: Callable[[], ctypes.c_char_p] = ctypes.c_char_p  # one that nobody reads
        self.adding: Callable[[], None] = lambda: None
        self.added: Callable[[], None] = lambda: None
        self.wake: Callable[[], None] = lambda: None

    def share_limits(self) -> None:
        """Divides the room among the threads there are now."""
        if limits.rows:
            self.set_limits(True)

    def set_limits(self, on: bool) -> None:
        """Sets the limits: keeps intervals and spans from now on, or none if `on` is false."""
        share = ALL_INTERVALS // max(1, len(self.threads))
        limits.rows = WIDTH * max(FEWEST, min(MOST_INTERVALS, share)) if on else 0
        limits.wake = limits.rows // WIDTH // 2 * WIDTH
        limits.spans = MOST_SPANS if on else 0


class Thread:
    """State of one thread. Only `idle`, `drain` and `take_spans` are for another thread, always the same one."""

    __slots__ = (
        "context",
        "cpu_clock",
        "cut",
        "dropped",
        "dropped_spans",
        "ended",
        "opened",
        "reported",
        "reported_spans",
        "rows",
        "slot",
        "spans",
        "tid",
    )

    def __init__(self, slot: ctypes.c_char_p) -> None:
        self.slot = slot
        slot.value = None
        self.tid = threading.get_native_id()
        self.cpu_clock = _cpu_clock()
        self.context: Context | None = None
        self.opened: Open | None = None
        self.rows: list[Context | int] = []
        self.spans: list[SpanEnd] = []
        self.dropped = self.dropped_spans = 0
        self.reported = self.reported_spans = 0  # of the dropped; the sending thread's
        self.ended = False
        self.cut: tuple[int, int, int] | None = None  # start of what was cut, and the clocks up to which it is sent

    def switch(self, context: Context | None) -> int:
        """Leaves the context this thread is in for another, or for none. Returns the monotonic clock.

        The record shows a context only while the clock is in its interval. A call from within a call (a signal
        handler) is passed over.
        """
        opened = self.opened
        if context is self.context or opened is _SWITCHING:
            return _monotonic_ns()
        self.opened = _SWITCHING
        slot = self.slot
        try:
            if opened is None:
                now, cpu = _monotonic_ns(), _thread_time_ns()
            else:
                slot.value = None
                now, cpu = _monotonic_ns(), _thread_time_ns()
                rows = self.rows
                length = len(rows)
                if length < limits.rows:
                    rows += opened + (now, cpu)  # noqa: RUF005 - cheaper than unpacking it
                    if length == limits.wake:
                        registry.wake()
                elif limits.rows:
                    self.dropped += 1
            self.context = context
            if context is None:
                self.opened = None
            else:
                slot.value = context.record
                self.opened = (context, now, cpu)
        except BaseException:  # raised by a signal handler
            slot.value = None
            self.context = self.opened = None
            raise
        return now

    def end_span(self, span: SpanEnd) -> None:
        """Remembers a span that ended."""
        if len(self.spans) < limits.spans:
            self.spans.append(span)
        elif limits.spans:
            self.dropped_spans += 1

    @property
    def idle(self) -> bool:
        """Whether there is nothing to take now, although the thread still runs."""
        all_reported = self.dropped == self.reported and self.dropped_spans == self.reported_spans
        return all_reported and not (self.rows or self.opened or self.spans or self.ended)

    def drain(self) -> list[Context | int]:
        """Returns the finished rows and the part of the open one until now, WIDTH values for each row in one list."""
        opened = self.opened  # before the rows: so that all that ended before it are among them
        rows = _take_all(self.rows)
        if self.cut is not None and rows:
            start, *sent_up_to = self.cut
            starts = rows[1::WIDTH]
            if start in starts:
                at = WIDTH * starts.index(start)
                rows[at + 1 : at + 3] = sent_up_to
                self.cut = None
        return rows + self._cut(opened)

    def take_spans(self) -> list[SpanEnd]:
        """Removes and returns the spans that ended."""
        return _take_all(self.spans)

    def _cut(self, opened: Open | None) -> list[Context | int]:
        """The part of the open interval that was not sent yet, as a row; nothing where it is no longer open."""
        if opened is None or opened is _SWITCHING or self.cpu_clock is None:
            return []
        try:
            cpu = time.clock_gettime_ns(self.cpu_clock)
        except OSError:  # the thread is no more
            self.ended = True
            return []
        now = _monotonic_ns()
        if self.opened is not opened:  # its owner may have read the clocks before us
            return []
        context, start, start_cpu = opened
        sent = self.cut
        self.cut = (start, now, cpu)
        if sent is not None and sent[0] == start:
            _, start, start_cpu = sent
        return [context, start, start_cpu, now, cpu]


class _Guard:
    """Lives as long as its thread, and makes the thread leave its context when it ends."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._process = os.getpid()

    def __del__(  # bound here, for module globals are gone when an interpreter ends
        self,
        finalizing: Callable[[], bool] = sys.is_finalizing,
        thread_id: Callable[[], int] = threading.get_native_id,
        process_id: Callable[[], int] = os.getpid,
    ) -> None:
        if finalizing():
            return
        if thread_id() == self._thread.tid and process_id() == self._process:
            self._thread.switch(None)
        self._thread.ended = True


registry = Registry()
local = Local()


def this_thread() -> Thread:
    """Returns the state of the calling thread, and makes it at the first call."""
    thread = local.thread
    if thread is None:
        registry.adding()
        thread = local.thread = Thread(registry.slot())
        local.guard = _Guard(thread)
        with registry.lock:
            registry.threads.append(thread)
        registry.added()
    return thread


def enter(context: Context | None) -> int:
    """Switches the calling thread to a context, or to none. Returns the monotonic clock in ns."""
    return (local.thread or this_thread()).switch(context)


def forked() -> None:
    """In the child of a fork: only the calling thread is left; what the others had to send, the parent sends."""
    registry.lock = threading.Lock()
    registry.threads = []
    if local.thread is not None:
        local.thread.slot.value = None
        local.thread = None
    context = unless_ended(context_of_task.get())
    if context is not None:
        enter(context)


def _cpu_clock() -> int | None:
    """Clock of the calling thread's CPU time that other threads can read, where the system has one."""
    try:
        return time.pthread_getcpuclockid(threading.get_ident())
    except (AttributeError, OSError):
        return None


def _take_all(items: list[_T]) -> list[_T]:
    """Takes all items out of a list that another thread appends to."""
    copied = items[:]
    del items[: len(copied)]
    return copied
