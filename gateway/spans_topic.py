"""Reads spans that an OpenTelemetry Collector's Kafka exporter publishes (encoding `otlp_proto`)."""

import asyncio
import logging
import threading
from collections.abc import Sequence

from confluent_kafka import KafkaException, Message, TopicPartition

from gateway.errors import Refused
from gateway.intake import Intake
from gateway.readers.otlp_spans import parse_spans
from gateway.settings import GatewaySettings
from icestream import dead_letters, kafka
from icestream.topics import GATEWAY_SPANS_GROUP

_log = logging.getLogger(__name__)

_MESSAGES = 100
_WAIT_S = 0.5
_AGAIN_S = 1.0
_BAD = 400
_LETTERS_A_MINUTE = 60


class SpansTopic:
    """Takes the spans of a topic, on a thread of its own, until `close`. Several gateways share the partitions.

    It commits what Kafka has acknowledged, so a message may be taken twice; its spans are then stored once. A message
    that is no OTLP traces goes to the dead letters.
    """

    def __init__(self, settings: GatewaySettings, intake: Intake) -> None:
        self._intake = intake
        self._consumer = kafka.consumer(settings, GATEWAY_SPANS_GROUP)
        self._consumer.subscribe([settings.gateway_spans_topic])
        self._producer = kafka.producer(settings)
        self._rate = dead_letters.Rate(_LETTERS_A_MINUTE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="spans", daemon=True)
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
                found = self._consumer.consume(_MESSAGES, _WAIT_S)
                for message in found:
                    if (error := message.error()) is not None:
                        _log.warning("spans: %s", error.str())
                messages = [message for message in found if message.error() is None]
                if messages and await self._take(messages):
                    self._commit(messages)
            except KafkaException as error:  # what is not committed comes again
                _log.warning("spans: %s", error.args[0].str())
                self._stop.wait(_AGAIN_S)

    async def _take(self, messages: Sequence[Message]) -> bool:
        """Returns whether all of them are taken or dead letters; False: we are to stop before that."""
        letters: list[tuple[Message, Exception]] = []
        for message in messages:
            while True:
                try:
                    await self._intake.take_spans(parse_spans(message.value() or b""), "kafka")
                except Refused as error:
                    if error.status == _BAD:
                        letters.append((message, error))
                    elif self._stop.wait(_AGAIN_S):
                        return False
                    else:
                        continue
                break
        dead_letters.send_all(self._producer, self._rate, "gateway", letters)
        return True

    def _commit(self, messages: Sequence[Message]) -> None:
        ends = {(m.topic() or "", m.partition() or 0): (m.offset() or 0) + 1 for m in messages}
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        self._consumer.commit(offsets=places, asynchronous=False)
