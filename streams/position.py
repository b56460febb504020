"""How far a partition was processed: what outputs carry in a header, for recovery."""

from dataclasses import dataclass


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

    def encode(self) -> bytes:
        """Returns the four offsets as decimal numbers, separated by spaces."""
        return f"{self.raw_from} {self.activity_from} {self.raw_next} {self.activity_next}".encode()

    @classmethod
    def parse(cls, header: bytes | str | None) -> "Position":
        """Reads what `encode` wrote. Raises ValueError."""
        offsets = [int(text) for text in (header or b"").split()]
        if len(offsets) != 4:
            raise ValueError(f"a position has 4 offsets, got {len(offsets)}")
        return cls(*offsets)
