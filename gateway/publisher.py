"""Publishes messages to Kafka, and says when Kafka has them."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Report

from gateway import metrics
from gateway.errors import unavailable
from gateway.settings import IntakeSettings
from icestream.kafka import clients
from icestream.kafka.backlog import backlogs
from icestream.topics import RAW

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_LOG_S = 10.0
_READY_S = 2.0
_ROOM_S = 0.1
_QUEUE_KB = 131_072
_LINGER_MS = 25
"""How long a message waits for others that Kafka then gets in one request: it takes more CPU for a request than for a
message, and profiles that are compressed together share names."""
_UNREAD_BYTES = 1_000_000
"""Bytes that the gateway may have unread in the in-process broker: this machine's collector needs a share as well."""


class BatchPublisher:
    """Publishes on any thread, and polls for acknowledgements on its own, until `close`."""

    def __init__(self, settings: IntakeSettings) -> None:
        self._settings = settings
        self._ack_s = settings.gateway_ack_s
        self._logged = float("-inf")
        # A message that Kafka may have got twice is one batch to those who read it.
        self._producer = clients.producer(
            settings,
            **clients.MAY_REPEAT
            | {
                "message.timeout.ms": int(self._ack_s * 1000),
                "linger.ms": _LINGER_MS,
                "queue.buffering.max.kbytes": _QUEUE_KB,
                "log_level": 0,
            },
        )
        self._backlogs = backlogs(settings, _UNREAD_BYTES)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="publish", daemon=True)
        self._thread.start()

    async def publish(self, key: bytes, messages: Sequence[bytes], topic: str = RAW) -> None:
        """Returns when Kafka has acknowledged all messages. Raises Refused where it does not in time."""
        if topic not in self._backlogs:
            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(
                *(self._produce_when_queued(topic, key, message, loop) for message in messages)
            )
        else:
            answers = [await self._produce_when_there_is_room(topic, key, message) for message in messages]
        errors = [error for error in answers if error is not None]
        if errors:
            raise self._away(errors[0].str())
        metrics.SENT_BYTES.inc(sum(map(len, messages)))

    def ready(self) -> str | None:
        """Returns why nothing can be published, or None; may take two seconds."""
        try:
            topics = self._producer.list_topics(RAW, timeout=_READY_S).topics
        except KafkaException as error:
            return f"Kafka at {self._settings.kafka} cannot be reached: {error.args[0].str()}"
        problem = topics[RAW].error
        return None if problem is None else f"{RAW}: {problem.str()}; create the topics with: icestream topics create"

    def close(self) -> None:
        """Waits until what was given to `publish` is acknowledged, or has failed."""
        self._producer.flush(self._ack_s)
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.close()
        for backlog in self._backlogs.values():
            backlog.close()

    def _produce(
        self, topic: str, key: bytes, message: bytes, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[KafkaError | None]":
        """On any thread. The future is the error of the message, or None."""
        future: asyncio.Future[KafkaError | None] = loop.create_future()
        backlog = self._backlogs.get(topic)

        def settle(error: KafkaError | None) -> None:
            if not future.done():  # the sender may be gone
                future.set_result(error)

        def answer(error: KafkaError | None) -> None:
            if backlog is not None:
                backlog.release(len(message))
            with contextlib.suppress(RuntimeError):  # we are ending: the loop is closed, and nobody waits
                loop.call_soon_threadsafe(settle, error)

        def report(error: KafkaError | None, sent: Report) -> None:
            partition, offset = sent.partition(), sent.offset()
            if error is None and backlog is not None and partition is not None:
                backlog.sent(partition, offset or 0, len(message))
            answer(error)

        try:
            self._producer.produce(topic, message, key, on_delivery=report)
        except BufferError:
            answer(KafkaError(KafkaError._QUEUE_FULL, "too much waits for Kafka"))
        except KafkaException as error:
            answer(error.args[0])
        return future

    async def _produce_when_queued(
        self, topic: str, key: bytes, message: bytes, loop: asyncio.AbstractEventLoop
    ) -> KafkaError | None:
        """Waits while the queue is full: several large profiles have more messages than it holds."""
        deadline = time.monotonic() + self._ack_s
        while True:
            error = await self._produce(topic, key, message, loop)
            if error is None or error.code() != KafkaError._QUEUE_FULL or time.monotonic() > deadline:
                return error
            await asyncio.sleep(_ROOM_S)

    async def _produce_when_there_is_room(self, topic: str, key: bytes, message: bytes) -> KafkaError | None:
        """Publishes one message after the other: the in-process broker drops what nobody has read."""
        deadline = time.monotonic() + self._ack_s
        loop = asyncio.get_running_loop()
        while (answer := await asyncio.to_thread(self._produce_if_room, topic, key, message, loop)) is None:
            if time.monotonic() > deadline:
                raise unavailable(f"the readers of {topic} are behind, and the in-process broker has no room for more")
            await asyncio.sleep(_ROOM_S)
        return await answer

    def _produce_if_room(
        self, topic: str, key: bytes, message: bytes, loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[KafkaError | None] | None":
        """Takes the room and produces in one step, which goes on where the sender goes away."""
        if not self._backlogs[topic].reserve(len(message)):
            return None
        return self._produce(topic, key, message, loop)

    def _away(self, error: str) -> Exception:
        if time.monotonic() - self._logged > _LOG_S:
            self._logged = time.monotonic()
            _log.warning("Kafka at %s: %s", self._settings.kafka, error)
        return unavailable(f"Kafka did not take it: {error}")

    def _poll(self) -> None:
        with contextlib.suppress(RuntimeError):  # the producer was closed by somebody else: nothing is left to poll for
            while not self._stop.is_set():
                self._producer.poll(_POLL_S)
