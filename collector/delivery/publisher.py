"""Publishes windows from the spool to Kafka, in order. Deletes a window when the broker has acknowledged all of it.

The producer never gives up a message by itself (`message.timeout.ms` 0). So while the broker is away, a few windows
wait in its memory and the rest on disk. A window that the broker refuses for good is dropped and counted.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from collector import metrics
from collector.delivery.message_log import Message
from collector.delivery.spool import MEMORY_BYTES, Spool, SpooledWindow
from collector.settings import CollectorSettings
from icestream.kafka.backlog import backlogs
from icestream.kafka.clients import producer

log = logging.getLogger(__name__)

_IN_FLIGHT_BYTES = 4 << 20
_IN_FLIGHT_SHARE = 0.5
"""The share of the spool's limit that windows in flight may take: they cannot be dropped, and the rest is for the
newest ones."""
_RETRY_S = 5.0
_AFTER_FAILURE_S = 1.0  # so that what fails at once does not fail all the time
_IDLE_S = 2.0  # without a window; the client reports its errors then
_ACKNOWLEDGED_S = 0.5  # until the next look for windows, while the broker does not answer
_MOST_READS = 24
"""A window that the disk does not give in two minutes is given up, so that the others go on."""
_LOG_S = 10.0
_LOG_DROPPED_S = 60.0
_SILENT_S = 180.0
"""An idle host has a window in each minute, too. Without any for so long, what makes windows stands still."""
_ALONE_S = 1.0
"""How long a message that is sent alone waits for the broker before the next one is sent."""
_HOPELESS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD})


@dataclass
class _Flight:
    """A window in flight."""

    entry: SpooledWindow
    size: int
    unacknowledged: int
    error: KafkaError | None = None


class SpoolPublisher:
    """Publishes what is in the spool on a thread of its own, from `start` until `close`."""

    def __init__(self, settings: CollectorSettings, spool: Spool) -> None:
        self._settings = settings
        self._spool = spool
        self._backlogs = backlogs(settings)
        self._most_in_flight = min(_IN_FLIGHT_BYTES, _IN_FLIGHT_SHARE * (settings.spool_limit_mb << 20))
        self._flights: dict[int, _Flight] = {}
        self._alone: set[int] = set()
        """Windows that the broker refused together with others: one request holds messages of several windows, and it
        says of none which it was. These are sent again alone, message by message."""
        self._not_before = 0.0
        self._fatal = False
        self._failed_reads = 0  # of the oldest window
        self._appended = time.monotonic()  # when the last window came
        self._counted = (0, 0, 0)
        self._unlogged, self._log_again = 0, 0.0
        self._trouble: str | None = None
        self._error: str | None = None
        self._wake = threading.Event()
        self._stop = False
        self._logged = float("-inf")
        self._producer = self._connect()
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, messages: Sequence[Message]) -> None:
        """Takes a window; it is on disk when this returns. The messages are sent in their order."""
        self._spool.append(messages)
        self._appended = time.monotonic()
        self._wake.set()

    def take_dropped_samples(self) -> int:
        """How many samples were in windows that were given up since the last call."""
        return self._spool.take_dropped_samples()

    def send(self, message: Message) -> None:
        """Publishes a message that may be lost, without the spool. Raises BufferError when too much is waiting."""
        self._producer.produce(message.topic, message.value, message.key)

    def ready(self) -> str | None:
        """None while windows come and reach Kafka, else what keeps them from it."""
        silent_s = time.monotonic() - self._appended
        if silent_s > max(_SILENT_S, 20 * self._settings.interval):
            return f"no window was made for {silent_s:.0f} s: a file, a disk or a process of this host may not answer"
        return self._error

    def close(self, timeout_s: float = 5.0) -> int:
        """Publishes what it can within the time. Returns how many windows stay in the spool."""
        deadline = time.monotonic() + timeout_s
        while len(self._spool) and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.02)
        self._stop = True
        self._wake.set()
        self._thread.join()
        self._producer.flush(max(0.0, deadline - time.monotonic()))  # symbol files
        self._producer.purge()
        self._producer.close()
        for backlog in self._backlogs.values():
            backlog.close()
        return len(self._spool)

    def _run(self) -> None:
        while not self._stop:
            try:
                self._step()
            except (KafkaException, BufferError) as error:
                self._fail(f"{error}")
                self._stay_back()
                self._wake.wait(_AFTER_FAILURE_S)
            except Exception:
                log.exception("publishing failed; trying again in %d s", _RETRY_S)
                self._stay_back()
                self._wake.wait(_AFTER_FAILURE_S)

    def _step(self) -> None:
        if self._fatal:
            self._reconnect()
        if self._send_next():
            self._producer.poll(0)
        elif self._flights:
            self._producer.poll(_ACKNOWLEDGED_S)
        else:
            self._wake.wait(_IDLE_S)
            self._wake.clear()
            self._producer.poll(0)
        self._settle()
        self._count()

    def _send_next(self) -> bool:
        """Publishes the oldest window that is not in flight. False where there is none, or no room for it."""
        if time.monotonic() < self._not_before:
            return False
        if not self._alone.isdisjoint(self._flights):
            return False
        if self._flights and (self._backlogs or sum(f.size for f in self._flights.values()) > self._most_in_flight):
            return False
        entry = self._spool.hold(skip=set(self._flights))
        if entry is None:
            return False
        alone = entry.number in self._alone
        if alone and self._flights:
            self._spool.release(entry)
            return False
        messages = self._read(entry)
        if messages is None:
            return False
        if not messages:
            log.warning("a window in the spool was damaged and is dropped")
            metrics.DROPPED.inc()
            self._spool.give_up(entry)
            return True
        if not self._room(messages):
            self._spool.release(entry)
            return False
        size = sum(len(message.value) for message in messages)
        flight = self._flights[entry.number] = _Flight(entry, size, len(messages))
        for message in messages:
            self._produce(flight, message)
            if alone:
                self._producer.flush(_ALONE_S)
        return True

    def _read(self, entry: SpooledWindow) -> list[Message] | None:
        """Returns None if its file cannot be read now: it is not lost, because a disk or a limit of open files may
        recover."""
        try:
            messages = self._spool.read(entry)
        except OSError as error:
            self._failed_reads += 1
            if self._failed_reads < _MOST_READS:
                self._spool.release(entry)
                self._fail(f"the spool cannot be read: {error}")
                self._stay_back()
                return None
            messages = []
        self._failed_reads = 0
        return messages

    def _produce(self, flight: _Flight, message: Message) -> None:
        def report(error: KafkaError | None, sent: Report) -> None:
            flight.unacknowledged -= 1
            if error is not None:
                flight.error = error
                self._fatal = self._fatal or error.fatal()
                return
            metrics.SENT_BYTES.labels(message.topic).inc(len(message.value))
            backlog, partition, offset = self._backlogs.get(message.topic), sent.partition(), sent.offset()
            if backlog is not None and partition is not None and offset is not None:
                backlog.sent(partition, offset, len(message.value))

        try:
            self._producer.produce(message.topic, message.value, message.key, on_delivery=report)
        except (BufferError, KafkaException) as error:
            flight.unacknowledged -= 1
            first = error.args[0] if error.args else None
            flight.error = first if isinstance(first, KafkaError) else KafkaError(KafkaError._QUEUE_FULL)
            self._fatal = self._fatal or flight.error.fatal()

    def _settle(self) -> None:
        """Deletes delivered windows. One that failed is published again later."""
        for number, flight in list(self._flights.items()):
            if flight.unacknowledged:
                continue
            del self._flights[number]
            if flight.error is not None and flight.error.code() in _HOPELESS and number not in self._alone:
                self._alone.add(number)
                self._spool.release(flight.entry)
                continue
            if flight.error is None:
                self._error = None
                self._alone.discard(number)
                self._spool.delete(flight.entry)
            elif flight.error.code() in _HOPELESS:
                self._alone.discard(number)
                self._fail(f"a window is dropped, the broker refuses it: {flight.error}")
                metrics.DROPPED.inc()
                self._spool.give_up(flight.entry)
            else:
                self._fail(f"{flight.error.str()}{_advice(flight.error)}")
                self._spool.release(flight.entry)
                self._stay_back()

    def _count(self) -> None:
        metrics.SPOOL_BYTES.set(self._spool.bytes)
        metrics.SPOOL_WINDOWS.set(len(self._spool))
        counts = self._spool.dropped, self._spool.dropped_samples, self._spool.failed_writes
        if counts != self._counted:
            dropped, samples, failed = (now - before for now, before in zip(counts, self._counted, strict=True))
            self._counted = counts
            metrics.DROPPED.inc(dropped)
            metrics.DROPPED_SAMPLES.inc(samples)
            metrics.SPOOL_FAILURES.inc(failed)
            self._unlogged += dropped
        if self._unlogged and time.monotonic() >= self._log_again:
            log.warning("the spool is full: %d of the oldest windows were dropped", self._unlogged)
            self._unlogged, self._log_again = 0, time.monotonic() + _LOG_DROPPED_S
        if (trouble := self._spool.trouble) != self._trouble:
            self._trouble = trouble
            if trouble:
                log.warning("%s; windows wait in memory, %d MB of them", trouble, MEMORY_BYTES >> 20)
            else:
                log.info("the spool takes windows again")

    def _room(self, messages: Sequence[Message]) -> bool:
        for topic, backlog in self._backlogs.items():
            size = sum(len(message.value) for message in messages if message.topic == topic)
            if size and not backlog.room(size):
                return False
        return True

    def _stay_back(self) -> None:
        self._not_before = time.monotonic() + _RETRY_S

    def _connect(self) -> Producer:
        def failed(error: KafkaError) -> None:
            self._fatal = self._fatal or error.fatal()
            self._fail(f"{error.str()}")

        more = {"message.timeout.ms": 0, "error_cb": failed, "queue.buffering.max.kbytes": 32_768, "log_level": 0}
        return producer(self._settings, **more)

    def _reconnect(self) -> None:
        """Makes a new producer after a fatal error of the old one, and publishes again what the old one had."""
        fresh = self._connect()  # if this fails, the old one is still there when it is tried again
        self._producer.purge()
        self._producer.poll(1.0)
        self._producer.close()
        for flight in self._flights.values():
            self._spool.release(flight.entry)
        self._flights.clear()
        self._producer = fresh
        self._fatal = False

    def _fail(self, error: str) -> None:
        metrics.ERRORS.inc()
        if error != self._error and time.monotonic() - self._logged > _LOG_S:
            log.warning("Kafka: %s", error)
            self._logged = time.monotonic()
        self._error = error


def _advice(error: KafkaError) -> str:
    missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    return ": create the topics with: icestream topics create" if missing else ""
