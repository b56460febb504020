"""Messages that could not be processed, kept as they came on icestream.dead-letters, with what was wrong in headers.

A flood of them must not hold up good messages. So a part publishes only some a minute for each topic and reason, and
counts the others (`Rate`); they stay where they came from.

The headers are UTF-8: `icestream.error` (the reason in words), `icestream.stage` (the part that failed), and
`icestream.topic`, `icestream.partition`, `icestream.offset` (where the message came from). A message that is too large
for the topic is cut; `icestream.size` and `icestream.sha256` are then those of the complete message at its source.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from prometheus_client import Counter

from icestream.messages.checks import BadMessage
from icestream.topics import DEAD_LETTERS, MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

NOT_PUBLISHED = Counter(
    "icestream_dead_letters_not_published",
    "messages that could not be processed and were only counted, because others with the same reason were published",
    ["stage", "topic", "reason"],
)

_MINUTE_S = 60.0
_FLUSH_S = 30.0
_NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, f"no answer to dead letters for {_FLUSH_S:.0f} s")
_LATE = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
MAX_ERROR = 2000
"""Longer reasons are cut to this many characters."""

Delivered = Callable[[KafkaError | None, Message], None]


@dataclass
class _Allowance:
    """What may be published now of one topic and reason."""

    left: float
    at_s: float


class Rate:
    """Limits how many dead letters of each topic and reason are published. Used by one thread."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._allowances: dict[tuple[str, str, str], _Allowance] = {}

    def admits(self, stage: str, topic: str, error: Exception) -> bool:
        """Returns whether to publish a message that failed with this error; counts it if not."""
        key = (stage, topic, reason(error))
        now = time.monotonic()
        allowance = self._allowances.setdefault(key, _Allowance(self._per_minute, now))
        earned = (now - allowance.at_s) / _MINUTE_S * self._per_minute
        allowance.left, allowance.at_s = min(allowance.left + earned, self._per_minute), now
        if allowance.left >= 1:
            allowance.left -= 1
            if allowance.left < 1:
                log.warning("%s: too many dead letters of %s (%s): some are only counted, not published", *key)
            return True
        NOT_PUBLISHED.labels(*key).inc()
        return False

    def give_back(self, stage: str, topic: str, error: Exception) -> None:
        """Takes back that a message was admitted: it was not published, and comes again."""
        allowance = self._allowances[stage, topic, reason(error)]
        allowance.left = min(allowance.left + 1, self._per_minute)


def reason(error: Exception) -> str:
    """Returns what is wrong in a word: the field of a bad message, or the kind of another error."""
    return error.field if isinstance(error, BadMessage) else type(error).__name__


def send_all(producer: Producer, rate: Rate, stage: str, letters: Sequence[tuple[Message, Exception]]) -> None:
    """Publishes consumed messages, as many as `rate` admits; returns when Kafka has them.

    A message that Kafka refuses is counted as not published. Raises KafkaException when Kafka does not answer.
    """
    admitted = [(message, error) for message, error in letters if rate.admits(stage, message.topic() or "", error)]
    try:
        _send_admitted(producer, stage, admitted)
    except KafkaException:
        for message, error in admitted:
            rate.give_back(stage, message.topic() or "", error)
        raise


def _send_admitted(producer: Producer, stage: str, letters: Sequence[tuple[Message, Exception]]) -> None:
    late: list[KafkaError] = []
    for message, error in letters:
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        log.warning("%s: %s goes to the dead letters: %s", stage, place, error)
        refused = NOT_PUBLISHED.labels(stage, message.topic() or "", reason(error))
        while True:
            try:
                send(producer, message, stage, error, _report(place, refused, late))
                break
            except BufferError:
                if not producer.poll(_FLUSH_S):
                    raise KafkaException(_NO_ANSWER) from None
            except KafkaException as problem:
                _report(place, refused, late)(problem.args[0], message)
                break
    if producer.flush(_FLUSH_S):
        raise KafkaException(_NO_ANSWER)
    if late:
        raise KafkaException(late[0])


def _report(place: str, refused: Counter, late: list[KafkaError]) -> Delivered:
    """Returns what takes the delivery report of a dead letter."""

    def delivered(problem: KafkaError | None, message: Message) -> None:
        if problem is not None and problem.code() in _LATE:
            late.append(problem)
        elif problem is not None:
            log.error("Kafka refuses the dead letter of %s: %s", place, problem.str())
            refused.inc()

    return delivered


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
