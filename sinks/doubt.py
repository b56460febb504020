"""Whether a sink still reads the log that it knows.

A sink that gets a partition, or whose connection to Kafka broke, first reads the last message that it knows once more
(icestream/log_mark.py). If Kafka has another one there, the topic was made anew, or Kafka has lost messages, and has
given their offsets to others. Then the sink goes back to the last message that it finds as it was, or to the beginning.
Batches that are stored are recognised, so nothing is stored twice.
"""

from dataclasses import dataclass

from confluent_kafka import Message

from icestream.log_mark import Mark
from sinks.pending import Pending


@dataclass
class Doubt:
    """A partition in doubt: what to look for in its log, and how to go on if it is there."""

    marks: tuple[Mark, ...]
    """Of messages that should be there, the latest first. Empty: nothing is left to look for."""
    goes_on_at: int
    """Negative: at the beginning."""
    pending: Pending
    looks: bool = False
    """Whether the next message is that of the first mark, if it is there."""
    changed: bool = False
    """Whether a message was not there."""

    def next_offset(self, low: int, high: int) -> int:
        """Returns from where to read a log that has the offsets [low, high). What it no longer has is believed."""
        while self.marks and self.marks[0].offset >= high:
            self._is_absent()
        self.looks = bool(self.marks) and self.marks[0].offset >= low
        return self.marks[0].offset if self.looks else max(self.goes_on_at, low)

    def take(self, message: Message) -> None:
        """Takes the message that came next."""
        self.looks = False
        if Mark.of(message) == self.marks[0]:
            self.marks = ()
        else:
            self._is_absent()

    def _is_absent(self) -> None:
        self.marks = self.marks[1:]
        self.goes_on_at = self.marks[0].offset + 1 if self.marks else -1
        self.pending = Pending(marks=self.marks)
        self.changed = True
