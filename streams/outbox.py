"""Publishes outputs, and says when the broker has acknowledged all of them."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Message

from icestream import dead_letters, kafka
from icestream.backlog import Backlog
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS, SYMBOL_REQUESTS
from icestream.v1.symbols_pb2 import SymbolRequest
from streams import metrics
from streams.process import Outputs

log = logging.getLogger(__name__)

POSITION_HEADER = "icestream.position"
"""Header of messages on icestream.samples: the `Position` after the message, for streams.recovery."""
Headers = list[tuple[str, str | bytes | None]]
_HOLD_S = 0.05
_COMPLAIN_S = 30.0


class Outbox:
    """An idempotent producer whose deliveries are futures of the running event loop.

    With the in-process broker, sending waits until the readers have made room.
    """

    def __init__(self, settings: KafkaSettings, hold_back_for: Iterable[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._producer = kafka.producer(settings, **{"queue.buffering.max.kbytes": 262_144})
        groups = list(hold_back_for) if settings.kafka_in_process else []
        self._backlogs = {topic: Backlog(settings, topic, groups) for topic in (STACKS, SAMPLES)} if groups else {}
        self._closing = threading.Event()
        self.held_back = False
        self._poller = threading.Thread(target=self._poll, name="deliveries", daemon=True)
        self._poller.start()

    async def send(self, outputs: Outputs, partition: int) -> "asyncio.Future[None]":
        """Publishes outputs to the input's partition. The future is done when all are acknowledged or one failed."""
        await self._room([(STACKS, outputs.stacks), (SAMPLES, outputs.samples)])
        delivery = Delivery(self._loop)
        position: Headers = [(POSITION_HEADER, outputs.position.encode())]
        for message in outputs.stacks:
            self._produce(delivery, STACKS, message, outputs.key, partition)
        for message in outputs.samples:
            self._produce(delivery, SAMPLES, message, outputs.key, partition, position)
        future = delivery.sealed()
        if self._backlogs:  # a backlog only counts delivered messages
            await asyncio.wait([future])
        return future

    async def send_stacks(self, outputs: Outputs, partition: int) -> "asyncio.Future[None]":
        """Publishes only the announcements."""
        return await self.send(Outputs(outputs.key, outputs.stacks), partition)

    def ask(self, requests: list[SymbolRequest]) -> None:
        """Publishes symbol requests. Lost ones are asked again."""
        for request in requests:
            metrics.SYMBOL_REQUESTS.inc()
            self._producer.produce(SYMBOL_REQUESTS, request.SerializeToString(), key=request.build_id.encode())

    def dead_letter(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes, stage: str, error: Exception
    ) -> "asyncio.Future[None]":
        """Publishes an input message to the dead letters."""
        log.warning("%s/%d/%d goes to the dead letters: %s", topic, partition, offset, error)
        delivery = Delivery(self._loop)
        delivery.expect()
        dead_letters.send_parts(
            self._producer, topic, partition, offset, key, value, f"streams {stage}", error, delivery.report
        )
        return delivery.sealed()

    def close(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for unacknowledged messages."""
        self._closing.set()
        self._poller.join()
        self._producer.flush(timeout_s)

    def _produce(
        self, delivery: "Delivery", topic: str, value: bytes, key: bytes, partition: int,
        headers: Headers | None = None,
    ) -> None:  # fmt: skip
        backlog = self._backlogs.get(topic)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if backlog is not None and error is None:
                backlog.sent(partition, message.offset() or 0, len(value))
            delivery.report(error, message)

        delivery.expect()
        while True:
            try:
                self._producer.produce(
                    topic, value, key=key, partition=partition, headers=headers or [], on_delivery=delivered
                )
                return
            except KafkaException as error:  # for instance, Kafka does not have the partition
                delivery.refused(error.args[0])
                return
            except BufferError:  # 256 MB are unacknowledged: waits for the broker
                self._producer.poll(0.1)

    async def _room(self, messages: list[tuple[str, list[bytes]]]) -> None:
        complain = time.monotonic() + _COMPLAIN_S
        for topic, values in messages:
            backlog = self._backlogs.get(topic)
            if backlog is None or not values:
                continue
            size = sum(map(len, values))
            # This may take a second when the broker does not answer.
            while not await self._loop.run_in_executor(None, backlog.room, size):
                self.held_back = True
                if time.monotonic() > complain:
                    log.warning("waiting for readers of %s: %d bytes are not read", topic, backlog.unread_bytes())
                    complain += _COMPLAIN_S
                await asyncio.sleep(_HOLD_S)
            self.held_back = False

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)


class Delivery:
    """Messages whose acknowledgements are awaited together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()
        self._open = 1  # counts itself, until sealed
        self._lock = threading.Lock()
        self._error: KafkaError | None = None

    def expect(self) -> None:
        with self._lock:
            self._open += 1

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Takes a delivery report, on the producer's thread."""
        self._done(error)

    def refused(self, error: KafkaError) -> None:
        """Notes a message that the producer did not take, for which there is no report."""
        self._done(error)

    def sealed(self) -> "asyncio.Future[None]":
        """Returns the future; no more messages are expected."""
        self._done(None)
        return self._future

    def _done(self, error: KafkaError | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._open -= 1
            last = self._open == 0
        if last and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self._future.done():
            return
        if self._error is not None:
            self._future.set_exception(RuntimeError(f"Kafka did not take a message: {self._error.str()}"))
        else:
            self._future.set_result(None)
