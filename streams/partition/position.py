"""How far a partition was processed: what outputs carry in a header, for recovery."""

from dataclasses import astuple, dataclass, fields

from icestream.kafka.log_mark import LogMark
from icestream.topics import RAW


@dataclass(frozen=True)
class Position:
    """Offsets of one partition of icestream.raw and icestream.activity after a message was processed."""

    raw_from: int = 0
    """The state can be rebuilt from this raw message on ..."""
    activity_from: int = 0
    """... and from this activity message on."""
    raw_next: int = 0
    """The raw message to process next."""
    activity_next: int = 0
    """The activity message to process next."""
    raw_checksum: int = 0
    """The checksum of the raw message before the next one, see icestream/kafka/log_mark.py; 0: not known."""
    activity_checksum: int = 0
    """The checksum of the activity message before the next one."""

    def is_before(self, other: "Position") -> bool:
        """Whether no more was processed of either topic than at another position."""
        return self.raw_next <= other.raw_next and self.activity_next <= other.activity_next

    def last(self, topic: str) -> LogMark | None:
        """Returns the mark of the last message that was processed of a topic; None before the first one."""
        following, checksum = (
            (self.raw_next, self.raw_checksum) if topic == RAW else (self.activity_next, self.activity_checksum)
        )
        return LogMark(following - 1, checksum) if following else None

    def encode(self) -> bytes:
        """Returns the fields as decimal numbers, separated by spaces."""
        return " ".join(map(str, astuple(self))).encode()

    @classmethod
    def parse(cls, header: bytes | str | None) -> "Position":
        """Reads what `encode` wrote. Raises ValueError."""
        numbers = [int(text) for text in (header or b"").split()]
        if len(numbers) != len(fields(cls)):
            raise ValueError(f"a position has {len(fields(cls))} numbers, got {len(numbers)}")
        return cls(*numbers)
