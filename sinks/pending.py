"""What was read of one partition and is not written yet."""

import time
from dataclasses import dataclass, field

from confluent_kafka import Message

from sinks.ranges import InFlight


@dataclass
class Pending:
    """Messages of one partition, in order of offset."""

    in_flight: InFlight | None = None
    """A range that was begun, by us or by an earlier owner of the partition: it has to be written as it is."""
    again: bool = False
    """Whether an attempt to write it was made before."""
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    since: float = 0.0

    def add(self, message: Message) -> None:
        if not self.messages:
            self.since = time.monotonic()
        self.messages.append(message)
        self.size += len(message.value() or b"")

    def due(self, flush_s: float, flush_bytes: int) -> bool:
        """Whether there is a range to write now. A range in flight is as soon as its end was read, and not before."""
        if not self.messages:
            return False
        if self.in_flight is not None:
            return _offset(self.messages[-1]) >= self.in_flight.last
        return self.size >= flush_bytes or time.monotonic() - self.since >= flush_s

    def next(self) -> tuple[InFlight, list[Message]]:
        """The range to write and its messages; the same until it is `written`."""
        if self.in_flight is None:
            self.in_flight = InFlight.new(_offset(self.messages[0]), _offset(self.messages[-1]))
        last = self.in_flight.last
        return self.in_flight, [m for m in self.messages if _offset(m) <= last]

    def written(self, offsets: InFlight) -> None:
        """Forgets a range; what came after it is a new one."""
        self.in_flight, self.again = None, False
        self.messages = [m for m in self.messages if _offset(m) > offsets.last]
        self.size = sum(len(m.value() or b"") for m in self.messages)
        self.since = time.monotonic()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # every consumed message has one
    return offset
