"""Reads icestream.samples and publishes icestream.flat, where each sample counts once.

Records of an interval's samples and the offsets of what they were made of are one transaction of Kafka. The metadata of
these offsets has the sources that were read, so that an output that streams published again is not counted twice.
"""

import logging
import threading
import time
import uuid

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.kafka import clients
from icestream.messages.checks import BadMessage
from icestream.messages.samples import SampleColumns, decode_samples
from icestream.topics import FLAT, FLATTEN_GROUP, MAX_MESSAGE_BYTES, SAMPLES, STACKS
from streams.flatten import metrics
from streams.flatten.health import FlattenHealth
from streams.flatten.late_operations import LateOperations
from streams.flatten.names_reader import NamesReader
from streams.flatten.operations_reader import OperationsReader
from streams.flatten.record import Encode, as_json, record
from streams.flatten.sources import Sources
from streams.flatten.sums import FlatSums
from streams.settings import FlattenSettings

_MESSAGES, _BYTES = 1_000, 32_000_000
"""What one transaction may be made of. The last message may have more bytes than are left."""

_AT_ONCE = 20
_NAMES_WAIT_S = 5.0
_OPERATIONS_S = 5.0
_STREAMS_LAG_MS = 3_600_000
"""Operations of samples that streams publish later than this after their activity may stay unknown."""
_START_WAIT_S = 300.0
_KAFKA_S = 30.0
_TELL_S = 60.0
_TELL_SHARE = 0.01
"""The log says so where more of the records of _TELL_S have stacks that are not known as a whole."""

_log = logging.getLogger(__name__)


def flatten(settings: FlattenSettings, interval_ms: int, stop: threading.Event, encode: Encode = as_json) -> None:
    """Works until `stop` is set. Raises KafkaException where it cannot go on; it may then be started again. Raises
    OSError where it cannot listen."""
    worker = _Flattener(settings, interval_ms, encode)
    health = None
    try:
        if settings.metrics_listen:
            health = FlattenHealth(settings, interval_ms, worker.problem, lambda: worker.partitions)
        worker.start(stop)
        while not stop.is_set():
            worker.work(stop)
    finally:
        if health is not None:
            health.close()
        worker.close()


class _Flattener:
    def __init__(self, settings: FlattenSettings, interval_ms: int, encode: Encode) -> None:
        self.partitions: set[int] = set()
        self._started = False
        self._interval_ms = interval_ms
        self._encode = encode
        self._names = NamesReader(settings, settings.flatten_memory_mb * 1_000_000, settings.names_url)
        self._consumer = clients.consumer(settings, FLATTEN_GROUP)
        # Any name will do: Kafka refuses the offsets of a consumer that is no longer in the group.
        self._producer = clients.producer(settings, **{"transactional.id": f"{FLATTEN_GROUP}.{uuid.uuid4()}"})
        self._in_process = clients.is_in_process(self._consumer, _KAFKA_S)
        self._operations = OperationsReader(settings, self._in_process)
        self._late = LateOperations()
        self._collected: list[Message] = []  # of this interval
        self._sources = Sources(self._consumer)
        self._records = self._unresolved = 0  # since it was told last
        self._told = time.monotonic()

    def start(self, stop: threading.Event) -> None:
        self._producer.init_transactions(_KAFKA_S)
        deadline = time.monotonic() + _START_WAIT_S
        while not stop.is_set() and time.monotonic() < deadline and not self._names.catch_up(time.monotonic() + 1.0):
            pass
        self._consumer.subscribe([SAMPLES], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._started = True

    def problem(self) -> str | None:
        """Returns why it cannot work yet; None when it can."""
        return None if self._started else f"the names that {STACKS} has are being read"

    def close(self) -> None:
        self._consumer.close()
        self._names.close()
        self._operations.close()

    def work(self, stop: threading.Event) -> None:
        """Publishes the records of what came in an interval."""
        batches: list[tuple[Message, SampleColumns]] = []
        ends: dict[int, int] = {}
        messages = self._collect(stop)
        self._sources.ask_again()
        for message in messages:
            partition = message.partition() or 0
            ends[partition] = (message.offset() or 0) + 1
            samples = _decode(message)
            if samples is None:
                continue
            if self._sources.is_new(partition, samples.source):
                batches.append((message, samples))
            else:
                metrics.REPEATED.inc()
        if not ends:
            self._names.catch_up(time.monotonic() + 1.0)
            return
        sums, corrected = self._sums(batches)
        unresolved = self._names.wait_for(sums.stack_ids, time.monotonic() + _NAMES_WAIT_S)
        try:
            self._publish(sums, ends)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _log.warning("reads again what it could not publish: %s", error.args[0].str())
            self._producer.abort_transaction(_KAFKA_S)
            metrics.ABORTED.inc()
            self._read_again()
        else:
            self._late.published(sums, corrected)
            self._count(sums, unresolved, len(batches), len(corrected))

    def _sums(self, batches: list[tuple[Message, SampleColumns]]) -> tuple[FlatSums, list[bytes]]:
        """Returns the sums with the corrections of earlier ones, and the contexts that are corrected."""
        self._operations.read(_times(batches), time.monotonic() + _OPERATIONS_S)
        sums = FlatSums(self._interval_ms)
        for message, samples in batches:
            sums.add(message.partition() or 0, samples, self._operations.find)
        return sums, self._late.correct(sums, self._operations.find)

    def _collect(self, stop: threading.Event) -> list[Message]:
        """Collects messages for one interval. Returns earlier if there are many, or if none comes at first."""
        self._collected.clear()
        size, deadline = 0, time.monotonic() + self._interval_ms / 1000
        while len(self._collected) < _MESSAGES and size < _BYTES and time.monotonic() < deadline and not stop.is_set():
            # Not more than fit, however large they are.
            most = min(_AT_ONCE, _MESSAGES - len(self._collected), 1 + (_BYTES - size) // MAX_MESSAGE_BYTES)
            for message in self._consumer.consume(most, timeout=0.2):
                if message.error() is None:
                    self._collected.append(message)
                    size += len(message.value() or b"")
            if not self._collected:
                break
        return self._collected

    def _publish(self, sums: FlatSums, ends: dict[int, int]) -> None:
        self._producer.begin_transaction()
        for key, flat_sum in sums.records():
            value = record(key, flat_sum, self._interval_ms, self._names.names, self._encode)
            while True:
                try:
                    self._producer.produce(FLAT, value, key=key.host_id, partition=key.partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        offsets = [
            TopicPartition(SAMPLES, partition, end, metadata=self._sources.metadata(partition))
            for partition, end in ends.items()
        ]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _KAFKA_S)
        self._producer.commit_transaction(_KAFKA_S)
        if self._in_process:  # it forgets the offsets of transactions
            clients.commit(self._consumer, offsets)

    def _count(self, sums: FlatSums, unresolved: set[int], messages: int, corrected: int) -> None:
        stacks = [key.stack_id for key, _ in sums.records()]
        lacking = sum(stack_id in unresolved for stack_id in stacks)
        metrics.MESSAGES.inc(messages)
        metrics.RECORDS.inc(len(stacks))
        metrics.UNRESOLVED.inc(lacking)
        metrics.UNKNOWN.inc(len(sums.without_operation))
        metrics.CORRECTED.inc(corrected)
        self._records, self._unresolved = self._records + len(stacks), self._unresolved + lacking
        if time.monotonic() < self._told + _TELL_S:
            return
        if self._unresolved > _TELL_SHARE * self._records:
            _log.warning(
                "%d of %d records have stacks that are not known as a whole: neither %s nor the API has their names",
                self._unresolved,
                self._records,
                STACKS,
            )
        self._records, self._unresolved, self._told = 0, 0, time.monotonic()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._load(partitions)
        self.partitions = {each.partition for each in partitions}

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Forgets what is not committed. The next owner of its partition reads it again, which may be this consumer."""
        self.partitions = set()
        self._collected.clear()
        self._late.clear()
        self._operations.forget_positions()

    def _read_again(self) -> None:
        """Goes back to what is committed."""
        for committed in self._load(self._consumer.assignment()):
            self._consumer.seek(TopicPartition(SAMPLES, committed.partition, max(committed.offset, 0)))

    def _load(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Takes the sources that the metadata of the committed offsets names; returns these offsets."""
        positions = clients.committed_positions(self._consumer, partitions, _KAFKA_S)
        for position in positions:
            self._sources.load(position.partition, position.metadata)
        return positions


def _times(batches: list[tuple[Message, SampleColumns]]) -> dict[int, tuple[int, int]]:
    """Returns the first and the last time at which there may be activity of the samples, by partition, in Unix
    milliseconds.

    Samples that are days old, as from a collector's spool, came together with their activity. So the first time is at
    most an hour before Kafka got the samples.
    """
    times: dict[int, tuple[int, int]] = {}
    for message, samples in batches:
        if len(samples.time_unix_milli):
            first, last = int(samples.time_unix_milli.min()), int(samples.time_unix_milli.max())
            first, partition = max(first, message.timestamp()[1] - _STREAMS_LAG_MS), message.partition() or 0
            before = times.get(partition, (first, last))
            times[partition] = min(first, before[0]), max(first, last, before[1])
    return times


def _decode(message: Message) -> SampleColumns | None:
    try:
        return decode_samples(message.value())
    except BadMessage as error:  # sinks put it into icestream.dead-letters
        metrics.REFUSED.inc()
        _log.warning("skips a message of %s: %s", SAMPLES, error)
        return None
