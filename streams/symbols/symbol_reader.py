"""Reads icestream.symbols. Every worker reads all of it from the earliest message, outside of the group."""

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Message, TopicPartition

from icestream.kafka.clients import consumer
from icestream.messages.checks import BadMessage
from icestream.messages.symbols import decode_symbol_file
from icestream.settings import KafkaSettings
from icestream.symbols.symcache import SymCacheError, SymCaches
from icestream.topics import STREAMS_GROUP, SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile
from streams import metrics

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_PARTITIONS_S = 20.0
"""Between two looks for partitions that were added."""


class SymbolReader:
    """A thread that hands symbol files to `symcaches`, from construction until `close`.

    It calls `received` with every good message. It sets `caught_up` when it has read everything that was there at the
    start: before that, symbols that seem to be missing may just not be read yet.
    """

    def __init__(self, settings: KafkaSettings, symcaches: SymCaches, received: Callable[[SymbolFile], None]) -> None:
        self.caught_up = threading.Event()
        self._symcaches = symcaches
        self._received = received
        self._stop = threading.Event()
        self._reader = consumer(settings, STREAMS_GROUP)
        self._ends: dict[int, int] = {}
        self._assigned: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="symbols", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2)

    def _run(self) -> None:
        look_at = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= look_at:
                try:
                    self._assign()
                    look_at = time.monotonic() + _PARTITIONS_S
                except KafkaException as error:
                    log.warning("cannot read %s: %s", SYMBOLS, error)
                    look_at = time.monotonic() + 1
            message = self._reader.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                log.warning("reading %s: %s", SYMBOLS, message.error())
                continue
            self._add(message)
            self._note_read(message.partition() or 0, (message.offset() or 0) + 1)
        self._reader.close()

    def _assign(self) -> None:
        """Adds the partitions that are not assigned yet. Raises KafkaException."""
        partitions = self._reader.list_topics(SYMBOLS, timeout=_TIMEOUT_S).topics[SYMBOLS].partitions
        starts, ends = [], {}
        for partition in set(partitions) - self._assigned:
            low, high = self._reader.get_watermark_offsets(TopicPartition(SYMBOLS, partition), timeout=_TIMEOUT_S)
            starts.append(TopicPartition(SYMBOLS, partition, low))
            if low < high:
                ends[partition] = high
        if starts:
            self._reader.incremental_assign(starts)
        self._assigned |= {start.partition for start in starts}
        self._ends |= ends
        if self._assigned and not self._ends:
            self.caught_up.set()

    def _note_read(self, partition: int, next_offset: int) -> None:
        if self._ends.get(partition, 0) <= next_offset:
            self._ends.pop(partition, None)
        if not self._ends:
            self.caught_up.set()

    def _add(self, message: Message) -> None:
        try:
            file = decode_symbol_file(message.value())
            new = self._symcaches.add(file)
        except (BadMessage, SymCacheError, OSError) as error:
            metrics.SYMBOL_FILES.labels("bad").inc()
            log.warning(
                "a symbol file cannot be used: %s/%s/%s: %s",
                message.topic(),
                message.partition(),
                message.offset(),
                error,
            )
            return
        metrics.SYMBOL_FILES.labels("refused" if file.error else "new" if new else "known").inc()
        self._received(file)
