"""The consumer loop of a sink: reads messages, and has ranges of them written by time and size, then committed.

A sink decodes messages and writes ranges; the runner does everything that concerns Kafka. If the store does not take a
range, the runner tries again after growing pauses. Until then it reads nothing more of that partition, and stays in the
group.
"""

import logging
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException

from icestream.files.free_space import DiskFullError
from icestream.kafka.clients import consumer
from icestream.kafka.readiness import GroupOffsets, GroupWatch, Standstills
from icestream.settings import KafkaSettings
from sinks import metrics
from sinks.clickhouse.disk_room import DiskRoom
from sinks.clickhouse.migrate import MigrationError
from sinks.runner.assignment import Assignment
from sinks.runner.kafka_clock import KafkaClock, newest_timestamp_ms
from sinks.runner.range_writer import RangeWriter, Reject
from sinks.sink import Sink

log = logging.getLogger(__name__)

_POLL_S = 0.1
_CHECK_S = 10.0
_RETRY_S = 2.0
_ASK_TIME_S = 60.0
_CHECK_LOGS_S = 20.0
_LOOK_FOR_S = 30.0
"""A consumer that cannot tell for so long where to read on gives way to a new one. librdkafka's clients no longer take
what a Kafka says that was put back to an old copy: its leaders are of an earlier epoch."""
_FETCH_BYTES, _FETCH_S, _LONGEST_FETCH_S = 250_000, 0.25, 1.0
"""A fetch waits so long until there are so many bytes: one for each message costs more than the message does. It must
not wait for more than a partition may have in it (`fetch.message.max.bytes`)."""


class Runner:
    """Runs one sink until `stop` is set."""

    def __init__(
        self,
        sink: Sink,
        settings: KafkaSettings,
        reject: Reject,
        stop: threading.Event,
        flush_s: float = 1.0,
        flush_bytes: int = 16_000_000,
        clock: KafkaClock | None = None,
        room: DiskRoom | None = None,
    ) -> None:
        """`clock`: is told the timestamps of messages; `room`: of the disk; None: it need not be asked about."""
        self.sink = sink
        self._clock = clock or KafkaClock()
        self._settings = settings
        self._room = room or DiskRoom(sink.name, None, 0)
        self._reject = reject
        self._stop = stop
        self._flush_s = flush_s
        self._flush_bytes = flush_bytes
        self._assignment = Assignment(sink)
        self._watch: GroupWatch | None = None
        self._knows_time = False  # from a message
        self._ask_time_at = 0.0
        self._next_check = 0.0
        self._kafka_problem: str | None = "has not reached Kafka yet"
        self._store_problem: str | None = None
        self._lost_connection = False
        self._looked = 0.0
        self._cluster = ""
        self._is_other_cluster = False
        self._check_logs_at = 0.0

    @property
    def problem(self) -> str | None:
        """Why it cannot work now; None when it can."""
        problems = (
            self._kafka_problem or (self._watch.problem if self._watch else None),
            self._store_problem or self._assignment.failure,
        )
        return "; ".join(problem for problem in problems if problem) or None

    def run(self) -> None:
        """Blocks until stopped. Raises MigrationError."""
        if not self._wait_for_store():
            return
        try:
            while not self._stop.is_set():
                self._run_consumer()
        finally:
            self.sink.close()

    def _run_consumer(self) -> None:
        """Reads and writes until it is stopped, or until a new consumer is needed."""
        reader = consumer(self._settings, self.sink.group, error_cb=self._note_error, **self._fetches())
        try:
            self._cluster, self._is_other_cluster = self._wait_for_kafka(reader), False
            if not self._cluster:
                return
            self._ask_time_at = time.monotonic() + _ASK_TIME_S
            self._watch = GroupWatch(
                self._settings, self.sink.group, self.sink.topics,
                own=self._assignment.read_to, collects_s=self._flush_s, on_offsets=self._note_offsets,
            )  # fmt: skip
            writer = RangeWriter(
                self.sink, self._assignment, self._reject, self._cluster, self._flush_bytes, self._room
            )
            reader.subscribe(
                list(self.sink.topics),
                on_assign=self._assignment.assigned,
                on_revoke=self._assignment.revoked,
                on_lost=self._assignment.revoked,
            )
            self._looked, self._assignment.needs_consumer = time.monotonic(), False
            while not self._stop.is_set() and not self._gives_way():
                self._assignment.hold_back(reader)
                self._read(reader)
                self._look(reader)
                writer.flush(reader, self._flush_s)
                self._check_store()
                self._idle()
            writer.flush(reader, 0.0)
            self._assignment.revoked(reader, reader.assignment())
        finally:
            if self._watch is not None:
                self._watch.close()
            reader.close()

    def _gives_way(self) -> bool:
        """Whether a new consumer is needed. librdkafka's clients may read nothing, for good and without a word, of a
        topic that was made anew, and of another cluster that answers at the address of the one that they knew
        (https://github.com/confluentinc/confluent-kafka-python/issues/1787)."""
        silent = self._is_other_cluster or self._assignment.needs_consumer
        return silent or time.monotonic() > self._looked + _LOOK_FOR_S

    def _fetches(self) -> dict[str, int]:
        """A fetch from the in-process broker always takes the whole time, and this broker keeps little."""
        longest_s = _FETCH_S if self._settings.kafka_in_process else _LONGEST_FETCH_S
        wait_s = min(max(self._flush_s / 4, _FETCH_S), longest_s)
        return {"fetch.min.bytes": _FETCH_BYTES, "fetch.wait.max.ms": round(1000 * wait_s)}

    def _wait_for_store(self) -> bool:
        """Waits until the store is there; returns False when stopped before. Raises MigrationError."""
        while not self._stop.is_set():
            self._check_store()
            if self._store_problem is None:
                return True
            self._stop.wait(_RETRY_S)
        return False

    def _check_store(self) -> None:
        """Asks the store from time to time, also when there is nothing to write. Raises MigrationError."""
        if time.monotonic() < self._next_check:
            return
        try:
            self.sink.check()
            self._room.check()
            self._store_problem = None
        except MigrationError:
            raise
        except DiskFullError as error:
            self._note_problem(str(error))
        except Exception as error:
            self.sink.failed()
            self._note_problem(f"the store cannot be reached: {error}")
        self._next_check = time.monotonic() + (_RETRY_S if self._store_problem else _CHECK_S)

    def _note_problem(self, problem: str) -> None:
        if self._store_problem is None:
            log.warning("%s: %s", self.sink.name, problem)
        self._store_problem = problem

    def _wait_for_kafka(self, reader: Consumer) -> str:
        """Waits for the cluster, and returns its ID; "" when stopped before."""
        while not self._stop.is_set():
            try:
                cluster = str(reader.list_topics(timeout=2).cluster_id)
            except KafkaException as error:
                self._kafka_problem = f"Kafka at {self._settings.kafka} cannot be reached: {error.args[0].str()}"
                log.warning("%s: %s", self.sink.name, self._kafka_problem)
                reader.poll(0)  # it logs why
                self._stop.wait(1)
            else:
                self._kafka_problem = None
                return cluster
        return ""

    def _note_error(self, error: KafkaError) -> None:
        """A callback of the consumer, within `consume`."""
        log.debug("%s: %s", self.sink.name, error.str())
        self._lost_connection |= error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

    def _read(self, reader: Consumer) -> None:
        messages = reader.consume(500, timeout=_POLL_S)
        if self._lost_connection:  # some of them may have come before, and others after that
            self._lost_connection = False
            self._assignment.doubt()
            return
        for message in messages:
            if (error := message.error()) is not None:
                self._complain(error)
                continue
            self._assignment.add(reader, message)
            self._clock.advance(message.timestamp()[1])
            self._knows_time = True
            metrics.MESSAGES.labels(self.sink.name, message.topic() or "").inc()
            metrics.BYTES.labels(self.sink.name, message.topic() or "").inc(len(message.value() or b""))

    def _note_offsets(self, offsets: GroupOffsets, standstills: Standstills) -> None:
        """GroupWatch calls it, in its thread. Where no message comes for a minute, they were read before this process
        started, and Kafka is asked how new they are."""
        self._assignment.note_lags(offsets, standstills)
        if offsets.cluster not in ("", self._cluster) and not self._is_other_cluster:
            log.error("%s: another Kafka answers, %s instead of %s", self.sink.name, offsets.cluster, self._cluster)
            self._is_other_cluster = True
        self._check_logs(offsets)
        if self._knows_time or time.monotonic() < self._ask_time_at:
            return
        self._ask_time_at = time.monotonic() + _ASK_TIME_S
        try:
            newest_ms = newest_timestamp_ms(self._settings, offsets.lags)
        except KafkaException as error:
            log.debug("%s: Kafka does not tell the newest timestamp: %s", self.sink.name, error)
            return
        self._clock.advance(newest_ms)
        self._knows_time = newest_ms > 0

    def _check_logs(self, offsets: GroupOffsets) -> None:
        if self._settings.kafka_in_process or time.monotonic() < self._check_logs_at:
            return
        self._check_logs_at = time.monotonic() + _CHECK_LOGS_S
        try:
            self._assignment.check_logs(self._settings)
            self._assignment.check_reading(self._settings, offsets.lags)
        except KafkaException as error:
            log.debug("%s: Kafka does not say whether logs have changed: %s", self.sink.name, error)

    def _complain(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._kafka_problem = f"{error.str()}: run `icestream topics create`"
        log.warning("%s: %s", self.sink.name, error.str())

    def _look(self, reader: Consumer) -> None:
        try:
            if self._assignment.look(reader):
                self._kafka_problem = None
            self._looked = time.monotonic()
        except KafkaException as error:
            log.warning("%s: cannot tell where to read on: %s", self.sink.name, error.args[0].str())
            self._stop.wait(1)

    def _idle(self) -> None:
        if self._store_problem or self._assignment.failure:
            return
        try:
            self.sink.idle()
        except Exception as error:  # the next call tries again, and messages are still read
            self.sink.failed()
            metrics.FAILURES.labels(self.sink.name).inc()
            log.error("%s: %s", self.sink.name, error)
            self._stop.wait(1)
