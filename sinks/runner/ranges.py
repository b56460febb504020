"""Ranges of messages of one partition: a sink writes a range as one unit, and a commit names the range in flight.

Before a range is written, the group's offset is committed at its first message, with the range as metadata. After a
crash, the next owner of the partition reads the metadata and writes exactly the same range again under the same name.
So a store that recognises the name (in ClickHouse, the deduplication token) stores the range once. The metadata also
marks the last message, and some before it, by which the next owner notices that it reads another log
(sinks/runner/doubt.py).
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from confluent_kafka import Message

from icestream.kafka.log_mark import LogMark
from icestream.messages.message_id import MessageId

T = TypeVar("T")


def message_id(message: Message, cluster: str) -> MessageId:
    """Returns where a consumed message lies."""
    return MessageId(cluster, message.topic() or "", message.partition() or 0, message.offset() or 0)


@dataclass(frozen=True)
class InFlight:
    """Offsets first to last of a partition.

    `nonce` distinguishes ranges with the same offsets that are not attempts at the same write: after a group was reset,
    or rows were deleted.
    """

    first: int
    last: int
    nonce: str

    @classmethod
    def new(cls, first: int, last: int) -> "InFlight":
        return cls(first, last, secrets.token_hex(6))

    @classmethod
    def parse(cls, text: str | None) -> "InFlight | None":
        """Reads what `str` wrote; None for anything else."""
        match = re.fullmatch(r"inflight:(\d{1,19})-(\d{1,19}):([0-9a-f]{12})", text or "")
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    def __str__(self) -> str:
        return f"inflight:{self.first}-{self.last}:{self.nonce}"


@dataclass(frozen=True)
class CommitNote:
    """The metadata of a commit: the range in flight, if there is one, and marks of messages, the latest first.

    The first mark is of the last message of the range in flight, or else of the last one that is stored.
    """

    in_flight: InFlight | None
    marks: tuple[LogMark, ...]

    @classmethod
    def parse(cls, metadata: str | None) -> "CommitNote":
        """Reads what `str` wrote; leaves out anything else."""
        words = (metadata or "").split(" ")
        return cls(InFlight.parse(words[0]), tuple(filter(None, map(LogMark.parse, words))))

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, (self.in_flight, *self.marks))))


@dataclass(frozen=True)
class MessageRange(Generic[T]):
    """The decoded messages of a range. Bad messages and gaps are left out."""

    cluster: str
    topic: str
    partition: int
    offsets: InFlight
    messages: Sequence[T]
    retried: bool
    """Whether an earlier attempt to write it was made, which may have succeeded."""

    @property
    def name(self) -> str:
        """The same for every attempt, and different from other ranges."""
        first, last, nonce = self.offsets.first, self.offsets.last, self.offsets.nonce
        return f"{self.cluster}/{self.topic}/{self.partition}/{first}-{last}/{nonce}"
