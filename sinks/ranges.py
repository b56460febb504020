"""Ranges of offsets of one partition: what a sink writes as one, and what a commit says of the one in flight.

Before a range is written, the group's offset is committed at its first message with the range as metadata. Whoever gets
the partition after a crash reads the metadata and writes exactly the same range under the same name again, so a store
that recognises the name (ClickHouse's deduplication token) takes it once.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class InFlight:
    """Offsets first to last of a partition; `nonce` tells two attempts at the same offsets apart that have nothing to
    do with each other (a group that was reset, a range that was deleted since)."""

    first: int
    last: int
    nonce: str

    @classmethod
    def new(cls, first: int, last: int) -> "InFlight":
        return cls(first, last, secrets.token_hex(6))

    @classmethod
    def parse(cls, metadata: str | None) -> "InFlight | None":
        """None where the metadata says something else."""
        match = re.fullmatch(r"inflight:(\d{1,19})-(\d{1,19}):([0-9a-f]{12})", metadata or "")
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    def __str__(self) -> str:
        return f"inflight:{self.first}-{self.last}:{self.nonce}"


@dataclass(frozen=True)
class Range(Generic[T]):
    """The decoded messages of a range; bad ones and holes are left out."""

    cluster: str
    topic: str
    partition: int
    offsets: InFlight
    messages: Sequence[T]
    again: bool
    """An attempt to write it was made before, maybe with success."""

    @property
    def name(self) -> str:
        """The same for each attempt, and no other range's."""
        first, last, nonce = self.offsets.first, self.offsets.last, self.offsets.nonce
        return f"{self.cluster}/{self.topic}/{self.partition}/{first}-{last}/{nonce}"
