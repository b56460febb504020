"""Messages that could not be processed, kept as they came on icestream.dead-letters, with what was wrong in headers.

The headers are UTF-8: `icestream.error` (the reason in words), `icestream.stage` (the part that failed), and
`icestream.topic`, `icestream.partition`, `icestream.offset` (where the message came from). A message that is too large
for the topic is cut; `icestream.size` and `icestream.sha256` are then those of the complete message at its source.
"""

import hashlib
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from icestream.topics import DEAD_LETTERS, MAX_MESSAGE_BYTES

MAX_ERROR = 2000
"""Longer reasons are cut to this many characters."""

Delivered = Callable[[KafkaError | None, Message], None]


def send(
    producer: Producer, message: Message, stage: str, error: Exception | str, on_delivery: Delivered | None = None
) -> None:
    """Hands a consumed message to the producer; the caller flushes. Raises BufferError when the queue is full."""
    send_parts(
        producer, message.topic() or "", message.partition() or 0, message.offset() or 0, message.key(),
        message.value(), stage, error, on_delivery,
    )  # fmt: skip


def send_parts(
    producer: Producer,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | str | None,
    value: bytes | str | None,
    stage: str,
    error: Exception | str,
    on_delivery: Delivered | None = None,
) -> None:
    """Like `send`, for a message that another client consumed."""
    data = value.encode() if isinstance(value, str) else value or b""
    headers = {
        "icestream.error": (str(error) or type(error).__name__)[:MAX_ERROR],
        "icestream.stage": stage,
        "icestream.topic": topic,
        "icestream.partition": str(partition),
        "icestream.offset": str(offset),
    }
    if len(data) > MAX_MESSAGE_BYTES:
        headers["icestream.size"] = str(len(data))
        headers["icestream.sha256"] = hashlib.sha256(data).hexdigest()
        data = data[:MAX_MESSAGE_BYTES]
    name = key.encode() if isinstance(key, str) else key
    producer.produce(
        DEAD_LETTERS,
        value=data,
        key=name[:1024] if name else None,
        headers=[(header, text.encode("utf-8", "replace")) for header, text in headers.items()],
        on_delivery=on_delivery,
    )
