"""The messages of one partition that are read and not written yet."""

import time
from dataclasses import dataclass, field

from confluent_kafka import Message

from sinks.ranges import InFlight


@dataclass
class Pending:
    """Messages of one partition, in the order of their offsets."""

    in_flight: InFlight | None = None
    """A range that this or an earlier owner of the partition has begun: it must be written as it is."""
    retried: bool = False
    """Whether an earlier attempt to write it was made."""
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    since: float = 0.0

    def add(self, message: Message) -> None:
        if not self.messages:
            self.since = time.monotonic()
        self.messages.append(message)
        self.size += len(message.value() or b"")

    def due(self, flush_s: float, flush_bytes: int) -> bool:
        """Returns whether there is a range to write now. A range in flight is due once its end was read."""
        if not self.messages:
            return False
        if self.in_flight is not None:
            return _offset(self.messages[-1]) >= self.in_flight.last
        return self.size >= flush_bytes or time.monotonic() - self.since >= flush_s

    def next(self) -> tuple[InFlight, list[Message]]:
        """Returns the range to write and its messages: the same until it is `written`."""
        if self.in_flight is None:
            self.in_flight = InFlight.new(_offset(self.messages[0]), _offset(self.messages[-1]))
        last = self.in_flight.last
        return self.in_flight, [m for m in self.messages if _offset(m) <= last]

    def written(self, offsets: InFlight) -> None:
        """Forgets a range. The messages after it become a new one."""
        self.in_flight, self.retried = None, False
        self.messages = [m for m in self.messages if _offset(m) > offsets.last]
        self.size = sum(len(m.value() or b"") for m in self.messages)
        self.since = time.monotonic()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # every consumed message has one
    return offset
