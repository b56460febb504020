"""Whether a sink still reads the log that it knows.

A sink that gets a partition, or whose connection to Kafka broke, first reads the last message that it knows once more
(icestream/kafka/log_mark.py). Beside that, a message that it read half a minute ago is looked up from time to time, as
a topic may be made anew within a moment. If Kafka has another message there, the topic was made anew, or Kafka has lost
messages, and has given their offsets to others. Then the sink writes what it has read, and goes back to the last
message that it finds as it was, or to the beginning. Batches that are stored are recognised: none is stored twice.
"""

from dataclasses import dataclass

from confluent_kafka import Message

from icestream.kafka.log_mark import LogMark
from sinks.runner.pending import Pending


@dataclass
class Doubt:
    """A partition in doubt: what to look for in its log, and how to go on if it is there."""

    marks: tuple[LogMark, ...]
    """The marks of messages that should be there, the latest first. Empty: nothing is left to look for."""
    goes_on_at: int
    """Negative: at the beginning."""
    pending: Pending
    looks: bool = False
    """Whether the next message is that of the first mark, if it is there."""
    changed: bool = False
    """Whether a message was not there."""
    found: tuple[LogMark, ...] = ()
    """The marks from the first one on that was there."""

    @property
    def writes(self) -> bool:
        """Whether what was read of a log that is gone is to be written before its partition goes on."""
        return self.changed and bool(self.pending.messages)

    def next_offset(self, low: int, high: int) -> int:
        """Returns from where to read a log that has the offsets [low, high). What it no longer has is believed."""
        while self.marks and self.marks[0].offset >= high:
            self._is_absent()
        self.looks = bool(self.marks) and self.marks[0].offset >= low
        if self.looks:
            return self.marks[0].offset
        self.found = self.found or self.marks
        return max(self.goes_on_at, low)

    def compare(self, message: Message) -> None:
        """Takes the message that came next."""
        self.looks = False
        if LogMark.from_message(message) == self.marks[0]:
            self.found, self.marks = self.marks, ()
        else:
            self._is_absent()

    def _is_absent(self) -> None:
        self.marks = self.marks[1:]
        self.goes_on_at = self.marks[0].offset + 1 if self.marks else -1
        self.changed = True
        if not self.pending.messages:
            self.pending = Pending()
