"""Reads topics that an OpenTelemetry Collector's Kafka exporter publishes (encoding `otlp_proto`)."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from confluent_kafka import KafkaException, Message, TopicPartition

from gateway.errors import Refused, bad_profile
from gateway.intake import Intake
from gateway.otlp_intake import take_profiles, take_spans
from gateway.readers.otlp import Arrival
from gateway.readers.otlp_revision import HEADER, check_revision
from gateway.settings import GatewaySettings
from icestream.kafka import clients, dead_letters
from icestream.topics import GATEWAY_PROFILES_GROUP, GATEWAY_SPANS_GROUP

_log = logging.getLogger(__name__)

_MESSAGES = 100
_BYTES = 4_000_000
"""The messages that are taken before the next commit have so many bytes: one may have 64 MiB, so a hundred would take
6 GB."""
_WAIT_S = 0.5
_AGAIN_S = 1.0
_LATER = 503
_LETTERS_A_MINUTE = 60
_MS = 1_000_000

Take = Callable[[Message], Awaitable[None]]
"""Takes a message in; returns once Kafka has all of it. Raises Refused if it cannot be taken, or not now."""


def spans_topic(settings: GatewaySettings, intake: Intake) -> "OtlpTopic":
    """Takes the spans of `gateway_spans_topic`."""

    async def receive(message: Message) -> None:
        with intake.memory.request() as reading:
            await take_spans(intake, reading, message.value() or b"", format_name="kafka")

    return OtlpTopic(settings, settings.gateway_spans_topic, GATEWAY_SPANS_GROUP, receive)


def profiles_topic(settings: GatewaySettings, intake: Intake) -> "OtlpTopic":
    """Takes the profiles of `gateway_profiles_topic`. If one profile of a message cannot be taken, the message becomes
    a dead letter as well: nobody would read an answer."""

    async def receive(message: Message) -> None:
        check_revision(_header(message, HEADER) or [str(settings.gateway_profiles_revision)])
        identity = f"{message.topic()}/{message.partition()}/{message.offset()}"
        arrival = Arrival(message.timestamp()[1] * _MS, identity.encode())
        with intake.memory.request() as reading:
            body, most = message.value() or b"", settings.gateway_max_series
            answer = await take_profiles(intake, reading, body, most, arrival=arrival)
        if answer.partial_success.rejected_profiles:
            raise bad_profile(answer.partial_success.error_message)

    return OtlpTopic(settings, settings.gateway_profiles_topic, GATEWAY_PROFILES_GROUP, receive)


def _header(message: Message, name: str) -> list[str]:
    """Returns the values of a header, whatever case its name is written in."""
    given = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    return [(value or b"").decode(errors="replace") for key, value in given if key.lower() == name]


class OtlpTopic:
    """Takes the messages of a topic, on a thread of its own, until `close`. Several gateways share the partitions.

    It commits a message after Kafka has acknowledged what was made of it. So a message may be taken twice, but its
    contents are stored once. A message that cannot be taken goes to the dead letters.
    """

    def __init__(self, settings: GatewaySettings, topic: str, group: str, take: Take) -> None:
        self._topic = topic
        self._take_message = take
        self._consumer = clients.consumer(settings, group, log_level=2)  # it rests while a message is taken
        self._ends: dict[tuple[str, int], int] = {}
        """Where the messages of each partition end that are taken and not committed yet."""
        self._consumer.subscribe([topic], on_revoke=lambda *_: self._ends.clear())
        self._producer = clients.producer(settings, **clients.MAY_REPEAT)  # of dead letters
        self._rate = dead_letters.Rate(_LETTERS_A_MINUTE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=topic, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends after the messages that are being taken."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        self._producer.close()

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                messages = self._consume()
                if messages and await self._take(messages):
                    self._ends |= {(m.topic() or "", m.partition() or 0): (m.offset() or 0) + 1 for m in messages}
                self._commit()
            except KafkaException as error:  # there may never be another message: it is tried again without one
                _log.warning("%s: %s", self._topic, error.args[0].str())
                self._stop.wait(_AGAIN_S)

    def _consume(self) -> list[Message]:
        """Returns what has come, or nothing after a short time."""
        found: list[Message] = []
        size = 0
        while size < _BYTES and (message := self._consumer.poll(0 if found else _WAIT_S)) is not None:
            if (error := message.error()) is not None:
                _log.warning("%s: %s", self._topic, error.str())
                break
            found.append(message)
            size += len(message) + _BYTES // _MESSAGES
        return found

    async def _take(self, messages: Sequence[Message]) -> bool:
        """Returns whether all of them are taken or dead letters; False if it was told to stop before that."""
        letters: list[tuple[Message, Exception]] = []
        for message in messages:
            while True:
                try:
                    await self._take_message(message)
                except Refused as error:
                    if error.status != _LATER:
                        letters.append((message, error))
                    elif self._stop.wait(_AGAIN_S):
                        return False
                    else:
                        continue
                except Exception as error:  # a fault of ours must not stop the topic
                    _log.exception("%s: %s", self._topic, type(error).__name__)
                    letters.append((message, error))
                break
        return self._send(letters)

    def _send(self, letters: Sequence[tuple[Message, Exception]]) -> bool:
        """Returns whether Kafka has the dead letters; False if it was told to stop before that. Some may come twice."""
        while True:
            try:
                dead_letters.send_all(self._producer, self._rate, "gateway", letters)
                return True
            except KafkaException as error:  # the consumer has gone on: the messages would not come again
                _log.warning("%s: dead letters: %s", self._topic, error.args[0].str())
                if self._stop.wait(_AGAIN_S):
                    return False

    def _commit(self) -> None:
        if self._ends:
            places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self._ends.items()]
            for place in clients.commit(self._consumer, places):
                if place.error is not None:
                    raise KafkaException(place.error)
            self._ends.clear()
