"""Publishes the outputs of partitions in transactions, and says when Kafka has acknowledged them.

Every partition has a transactional producer of its own. A worker that takes a partition over opens a producer with the
same transactional ID. From then on Kafka refuses what earlier owners publish, even if one was frozen and wakes up, and
aborts their open transactions. Readers see transactions completely or not at all, in order, so no output is missing
before one that they see. The in-process broker refuses nothing and shows messages at once, but it has one worker only.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from icestream.kafka import clients, dead_letters
from icestream.kafka.backlog import Backlog
from icestream.settings import KafkaSettings
from icestream.topics import DEAD_LETTERS, SAMPLES, STACKS, STREAMS_GROUP, SYMBOL_REQUESTS
from icestream.v1.symbols_pb2 import SymbolRequest
from streams import metrics
from streams.partition.process import OutputMessages

log = logging.getLogger(__name__)

POSITION_HEADER = "icestream.position"
"""Header of messages on icestream.samples: the `Position` after the message, for streams.partition.recovery."""
Headers = list[tuple[str, str | bytes | None]]
Produce = Callable[[Producer, dead_letters.Delivered | None], None]
"""Hands a message to a producer, with the function that takes its delivery report."""
LINGER_S = 0.05
"""How long a transaction waits for more outputs."""
SPACING_S = 0.25
"""How long after the one before it a transaction begins, unless much waits: each costs Kafka several writes, and its
readers a fetch."""
UNACKNOWLEDGED = 64
"""Messages of a topic whose outputs may be unacknowledged at a time."""
MANY = UNACKNOWLEDGED // 2
"""Outputs, also empty ones, that are published without waiting for more: else a backlog would wait for transactions."""
TRANSACTION_BYTES = 8_000_000
"""A transaction ends with the output that brings it to so many bytes."""
_ROOM_BYTES = 1_000_000
"""As TRANSACTION_BYTES, with the in-process broker, which keeps about 5 MB of a partition."""
_HOLD_S = 0.05
_COMPLAIN_S = 30.0
_TIMEOUT_MS = 300_000
"""How long a transaction may take, while Kafka is away for instance. Then the worker ends."""


@dataclass(frozen=True)
class _Sending:
    """Messages to publish together, and the future that is done when Kafka has them."""

    future: "asyncio.Future[None]"
    produce: list[Produce]
    size: dict[str, int]  # bytes by topic

    @property
    def bytes(self) -> int:
        return sum(self.size.values())


class Outboxes:
    """The outboxes of a worker's partitions."""

    def __init__(self, settings: KafkaSettings, hold_back_for: Iterable[str] = ()) -> None:
        """`hold_back_for`: with the in-process broker, groups that must have read before more is sent."""
        self.settings = settings
        groups = list(hold_back_for) if settings.kafka_in_process else []
        self.backlogs = {topic: Backlog(settings, topic, groups) for topic in (STACKS, SAMPLES)} if groups else {}
        self._producer = clients.producer(settings, **clients.MAY_REPEAT)  # of what belongs to no partition
        self._open: list[Outbox] = []

    def open(self, partition: int) -> "Outbox":
        """Returns an outbox that takes the partition over from whoever had it."""
        outbox = Outbox(self.settings, partition, self.backlogs)
        self._open = [other for other in self._open if other.alive()] + [outbox]
        return outbox

    @property
    def queued_bytes(self) -> int:
        """Bytes of outputs that are not acknowledged yet."""
        return sum(outbox.queued_bytes for outbox in self._open if not outbox.closing.is_set())

    def ask(self, requests: list[SymbolRequest]) -> None:
        """Publishes symbol requests. Whoever asks repeats those that get lost.

        It is to be called again and again, also without requests: the producer takes nothing more while it has too many
        delivery reports to give.
        """
        self._producer.poll(0)
        for request in requests:
            metrics.SYMBOL_REQUESTS.inc()
            with contextlib.suppress(BufferError, KafkaException):
                value, key = request.SerializeToString(), request.build_id.encode()
                self._producer.produce(SYMBOL_REQUESTS, value, key=key)

    async def announce(self, build_id: str, messages: list[bytes]) -> None:
        """Publishes names of locations of a build ID, when there is room for them. Those that get lost are in the next
        day's announcements."""
        backlog = self.backlogs.get(STACKS)
        for message in messages:
            while backlog and not await asyncio.to_thread(backlog.reserve, len(message)):
                await asyncio.sleep(_HOLD_S)
            while True:
                try:
                    self._producer.produce(STACKS, message, key=build_id.encode(), on_delivery=self._announced)
                    break
                except (BufferError, KafkaException):
                    await asyncio.sleep(_HOLD_S)

    def close(self, timeout_s: float) -> None:
        """Closes all outboxes; waits up to `timeout_s` for transactions that have begun."""
        deadline = time.monotonic() + timeout_s
        for outbox in self._open:
            outbox.close()
        for outbox in self._open:
            outbox.join(max(deadline - time.monotonic(), 0))

    def _announced(self, error: KafkaError | None, message: Message) -> None:
        if backlog := self.backlogs.get(STACKS):
            if error is None:
                backlog.sent(message.partition() or 0, message.offset() or 0, len(message))
            backlog.release(len(message))


class Outbox:
    """Publishes the outputs of one partition, on a thread, until `close`. Futures are of the running event loop.

    Everything that waits is published in one transaction. If Kafka does not take a message, or if another worker has
    taken the partition over, this and all further futures fail, and nothing of the transaction can be seen.
    """

    def __init__(self, settings: KafkaSettings, partition: int, backlogs: dict[str, Backlog]) -> None:
        self.queued_bytes = 0
        self.closing = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        """Done when nobody else can publish for this partition any more."""
        self._settings = settings
        self._partition = partition
        self._backlogs = backlogs
        self._limit = _ROOM_BYTES if backlogs else TRANSACTION_BYTES
        self._published_s = float("-inf")  # when the last transaction began
        self._queue: queue.SimpleQueue[_Sending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"outbox {partition}", daemon=True)
        self._thread.start()

    def send(self, outputs: OutputMessages) -> "asyncio.Future[None]":
        """Publishes outputs to the input's partition. The future is done when Kafka has all of them."""
        position: Headers = [(POSITION_HEADER, outputs.position.encode())]
        produce = [self._message(STACKS, value, outputs.key, []) for value in outputs.stacks]
        produce += [self._message(SAMPLES, value, outputs.key, position) for value in outputs.samples]
        size = {STACKS: sum(map(len, outputs.stacks)), SAMPLES: sum(map(len, outputs.samples))}
        return self._put(produce, size)

    def dead_letter(
        self, topic: str, offset: int, key: bytes | None, value: bytes, stage: str, error: Exception
    ) -> "asyncio.Future[None]":
        """Publishes an input message of this partition to the dead letters."""
        log.warning("%s/%d/%d goes to the dead letters: %s", topic, self._partition, offset, error)

        def produce(producer: Producer, delivered: dead_letters.Delivered | None) -> None:
            dead_letters.send_parts(
                producer, topic, self._partition, offset, key, value, f"streams {stage}", error, delivered
            )

        return self._put([produce], {DEAD_LETTERS: len(value)})

    def sent(self) -> "asyncio.Future[None]":
        """Returns a future that is done when everything so far is acknowledged."""
        return self._put([], {})

    def close(self) -> None:
        """Ends after the transaction that has begun; the rest is dropped."""
        self.closing.set()
        self._queue.put(None)

    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _message(self, topic: str, value: bytes, key: bytes, headers: Headers) -> Produce:
        return lambda producer, delivered: producer.produce(
            topic, value, key=key, partition=self._partition, headers=headers, on_delivery=delivered
        )

    def _put(self, produce: list[Produce], size: dict[str, int]) -> "asyncio.Future[None]":
        sending = _Sending(self._loop.create_future(), produce, size)
        self.queued_bytes += sending.bytes
        self._queue.put(sending)
        return sending.future

    def _run(self) -> None:
        """Runs on the thread."""
        error: Exception | None = None
        batch: list[_Sending] = []
        try:
            producer = clients.producer(
                self._settings,
                **{
                    "transactional.id": f"{STREAMS_GROUP}.{self._partition}",
                    "transaction.timeout.ms": _TIMEOUT_MS,
                },
            )
            self._take_over(producer)
            self._on_loop(_resolve, self.opened, None)
            while batch := self._batch():
                self._await_room(batch)
                self._publish(producer, batch)
                self._on_loop(self._done, batch, None)
        except KafkaException as raised:
            error = self._failure(raised.args[0])
            self._on_loop(_resolve, self.opened, error)
        except Exception as raised:
            error = raised
            self._on_loop(_resolve, self.opened, error)
        while error is not None and not self.closing.is_set():
            self._on_loop(self._done, batch, error)
            batch = [sending] if (sending := self._queue.get()) else []
        if error is None:
            producer.close()

    def _take_over(self, producer: Producer) -> None:
        while not self.closing.is_set():
            try:
                producer.init_transactions(10.0)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                log.warning("cannot take partition %d over yet: %s", self._partition, error.args[0].str())

    def _batch(self) -> list[_Sending]:
        """Waits for something to publish, and returns all that waits by then; [] when closed."""
        first = self._queue.get()
        if first and first.produce:
            time.sleep(LINGER_S)
            while time.monotonic() < self._published_s + SPACING_S and not self._has_much():
                time.sleep(LINGER_S)
        batch: list[_Sending] = []
        size = 0
        while first is not None and not self.closing.is_set():
            batch.append(first)
            size += first.bytes
            if size >= self._limit or self._queue.empty():
                return batch
            first = self._queue.get()
        return []

    def _has_much(self) -> bool:
        """Whether there is no reason to wait for more."""
        return self.closing.is_set() or self._queue.qsize() >= MANY or self.queued_bytes >= self._limit

    def _publish(self, producer: Producer, batch: list[_Sending]) -> None:
        """Publishes a batch in a transaction."""
        if not any(sending.produce for sending in batch):
            return
        self._published_s = time.monotonic()
        producer.begin_transaction()
        for sending in batch:
            for produce in sending.produce:
                self._produce(producer, produce)
        while producer.flush(1.0):
            if self.closing.is_set():
                raise RuntimeError("closed before all was delivered")
        producer.commit_transaction()

    def _produce(self, producer: Producer, produce: Produce) -> None:
        while True:
            try:
                # Without a callback where none is needed: a fatal error would interrupt it.
                return produce(producer, self._delivered if self._backlogs else None)
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None and (backlog := self._backlogs.get(message.topic() or "")):
            backlog.sent(self._partition, message.offset() or 0, len(message))

    def _await_room(self, batch: list[_Sending]) -> None:
        complain = time.monotonic() + _COMPLAIN_S
        for topic, backlog in self._backlogs.items():
            size = sum(sending.size.get(topic, 0) for sending in batch)
            while size and not backlog.room(size) and not self.closing.is_set():
                if time.monotonic() > complain:
                    log.warning("waiting for readers of %s: %d bytes are not read", topic, backlog.unread_bytes())
                    complain += _COMPLAIN_S
                time.sleep(_HOLD_S)

    def _failure(self, error: KafkaError) -> RuntimeError:
        if error.code() == KafkaError._FENCED:
            return RuntimeError(f"another worker has taken partition {self._partition} over")
        return RuntimeError(f"Kafka did not take a message: {error.str()}")

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def _done(self, batch: list[_Sending], error: Exception | None) -> None:
        for sending in batch:
            self.queued_bytes -= sending.bytes
            _resolve(sending.future, error)


def _resolve(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # marks it as seen: nobody may wait for it any more
