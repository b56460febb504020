"""icestream.dead-letters as rows of `dead_letters`: where a message came from and what was wrong, without its bytes."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Message

from icestream.times import MAX_UNIX_NANO

_MAX_TEXT = 1000


class DeadLetter(NamedTuple):
    """A row of the table `dead_letters`. A header that is missing or no number is "" or -1."""

    time: int  # milliseconds since 1970
    host_id: str
    topic: str
    partition: int
    offset: int
    stage: str
    error: str


def dead_letter(message: Message) -> DeadLetter:
    """Reads key and headers. Never fails: a dead letter has nowhere to go."""
    headers = dict(message.headers() or [])

    def text(value: object) -> str:
        return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or ""))[:_MAX_TEXT]

    def number(name: str, limit: int) -> int:
        digits = text(headers.get(name))
        return (
            int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 and int(digits) < limit else -1
        )

    return DeadLetter(
        time=min(max(message.timestamp()[1], 0), MAX_UNIX_NANO // 10**6 - 1),
        host_id=text(message.key()),
        topic=text(headers.get("icestream.topic")),
        partition=number("icestream.partition", 2**31),
        offset=number("icestream.offset", 2**63),
        stage=text(headers.get("icestream.stage")),
        error=text(headers.get("icestream.error")),
    )


def table(letters: Sequence[DeadLetter]) -> pa.Table:
    """Returns the rows to insert into `dead_letters`."""
    return pa.Table.from_pylist([letter._asdict() for letter in letters], schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("ms", "UTC")), ("host_id", pa.string()), ("topic", pa.string()),
        ("partition", pa.int32()), ("offset", pa.int64()), ("stage", pa.string()), ("error", pa.string()),
    ]
)  # fmt: skip
