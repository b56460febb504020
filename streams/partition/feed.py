"""The messages of one topic of a partition, on their way through a partition task."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from icestream.kafka.log_mark import LogMark, checksum
from icestream.messages.plausible import ANY_TIME, Times

_EVENT_BYTES = 1_000
"""About what a message takes, here and in Faust, beside its value."""


@dataclass(frozen=True)
class Event:
    """A message from Kafka, and the function that acknowledges it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    ack: Callable[[], object]
    times: Times = ANY_TIME  # that it may hold
    arrived_s: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        """About what it takes in memory."""
        return _EVENT_BYTES + len(self.value)

    @cached_property
    def mark(self) -> LogMark:
        return LogMark(self.offset, checksum(self.value))


@dataclass
class Feed:
    """The messages of one topic that wait, and those that are not acknowledged."""

    topic: str
    queue: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    queued_bytes: int = 0
    next_offset: int = 0  # offsets below were processed
    last: LogMark | None = None  # the last message that was processed
    checked: LogMark | None = None  # one that was processed before, up to which the log is known to be the same
    breaks: int = 0  # of connections, up to which the log is known to be the same
    doubted: bool = False  # whether `last` has to come again before anything is processed
    waits: bool = False  # for messages of the other topic
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # a message was processed, or waits
    deadline_s: float | None = None  # for a message to be processed: until then, the other topic waits
    low: int = 0  # of the log: Kafka has deleted what was before
    end: int = 0  # of the log
    earlier_end: int = 0  # where it ended when no message had come for a while
    end_asked_s: float = float("-inf")  # when the log was known to end there
    unacknowledged: "deque[tuple[Event, asyncio.Future[None]]]" = field(default_factory=deque)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, timeout_s: float) -> Event | None:
        """Returns the next message; None where none comes in time."""
        if not self.queue.empty():
            return self.queue.get_nowait()
        try:
            return await asyncio.wait_for(self.queue.get(), timeout_s)
        except TimeoutError:
            return None

    def skip_to(self, offset: int) -> None:
        """Notes that nothing before this offset is left to process."""
        if offset > self.next_offset:
            self.next_offset = offset
            self.moved.set()

    async def until_moved(self, timeout_s: float) -> None:
        """Waits until `moved` is set, or that time has passed."""
        self.moved.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.moved.wait(), timeout_s)
