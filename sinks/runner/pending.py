"""The messages of one partition that are read and not written yet."""

import bisect
import itertools
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Message

from icestream.kafka.log_mark import LogMark
from sinks.runner.ranges import CommitNote, InFlight

NO_LIMIT = 2**62
MESSAGE_BYTES = 6_000
"""Counted for a message beside its own bytes. Decoded, a large message takes about four times its bytes, and one of a
few hundred bytes 17 to 32 kB: without this, a range of small messages would take a gigabyte."""
_MARK_EVERY_S, _MAX_MARKS = 900.0, 9
"""Marks go two hours back. A sink reads again from the last one that is true, if Kafka has lost what came later."""
_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Decoded(NamedTuple):
    """A message, and what a sink made of it."""

    message: Message
    content: Any


@dataclass
class Pending:
    """Messages of one partition, in the order of their offsets."""

    in_flight: InFlight | None = None
    """A range that this or an earlier owner of the partition has begun: it must be written as it is."""
    retried: bool = False
    """Whether an earlier attempt to write it was made."""
    decoded: list[Decoded] | None = None
    """The messages of the range in flight, once they are decoded: bad ones are rejected once, not at every attempt."""
    problem: str | None = None
    """Why the latest attempt to write the range failed; None if it did not."""
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    since: float = 0.0
    failures: int = 0
    """How many attempts to write the range have failed."""
    marks: tuple[LogMark, ...] = ()
    """The marks of the last message that is stored, and of some before it, the latest first."""
    uncommitted: bool = False
    """Whether the group has not taken yet that the last range is stored."""
    _again: float = 0.0
    _marked: float = float("-inf")

    def add(self, message: Message) -> None:
        if not self.messages:
            self.since = time.monotonic()
        self.messages.append(message)
        self.size += _size(message)

    def due(self, flush_s: float, flush_bytes: int) -> bool:
        """Returns whether there is a range to write now. A range in flight is due once its end was read."""
        now = time.monotonic()
        if not self.messages or now < self._again or self._lacks_end():
            return False
        return self.in_flight is not None or self.size >= flush_bytes or now - self.since >= flush_s

    def must_wait(self, full: bool) -> bool:
        """Returns whether no more messages are to be read now. `full`: the sink holds as many as it may."""
        return self.problem is not None or (full and not self._lacks_end())

    def next(self, most_bytes: int = NO_LIMIT) -> InFlight:
        """Returns the range to write: the same until it is `written`. A new one ends with the message that brings it to
        `most_bytes`."""
        if self.in_flight is None:
            sizes = itertools.accumulate(map(_size, self.messages))
            end = bisect.bisect_left(list(sizes), most_bytes, hi=len(self.messages) - 1)
            self.in_flight = InFlight.new(_offset(self.messages[0]), _offset(self.messages[end]))
        return self.in_flight

    def in_range(self) -> list[Message]:
        """Returns the messages of the range in flight."""
        last = self.next().last
        return [m for m in self.messages if _offset(m) <= last]

    def commit_note(self) -> CommitNote:
        """Returns what to commit with the range, which the sink is about to write."""
        return CommitNote(self.next(), (LogMark.from_message(self.in_range()[-1]), *self.marks))

    def stored(self) -> CommitNote:
        """Returns what to commit once a range is written."""
        return CommitNote(None, self.marks)

    def range_size(self) -> int:
        """Returns the size of the range in flight, as counted for `flush_bytes`."""
        return sum(map(_size, self.in_range()))

    def failed(self, problem: str) -> None:
        """Keeps the range for another attempt, after a pause that grows."""
        self._again = time.monotonic() + _BACK_OFF_S[min(self.failures, len(_BACK_OFF_S) - 1)]
        self.failures += 1
        self.problem = problem

    def written(self) -> None:
        """Forgets the range in flight. The messages after it become a new one."""
        last = self.next().last
        self._mark(LogMark.from_message(self.in_range()[-1]))
        self.in_flight, self.retried, self.decoded, self.problem, self.failures = None, False, None, None, 0
        self.messages = [m for m in self.messages if _offset(m) > last]
        self.size = sum(map(_size, self.messages))
        self.since = time.monotonic()
        self.uncommitted = True

    def _mark(self, last: LogMark) -> None:
        kept = self.marks[1:]
        if time.monotonic() - self._marked > _MARK_EVERY_S:
            kept, self._marked = self.marks[: _MAX_MARKS - 1], time.monotonic()
        self.marks = (last, *kept)

    def _lacks_end(self) -> bool:
        """Returns whether messages of the range in flight are still to be read."""
        return self.in_flight is not None and (not self.messages or _offset(self.messages[-1]) < self.in_flight.last)


def _size(message: Message) -> int:
    return MESSAGE_BYTES + len(message.value() or b"")


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # every consumed message has one
    return offset
