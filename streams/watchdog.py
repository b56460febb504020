"""Ends a worker that makes no progress while its lag grows.

After a rebalance, Faust can stay "ready" without any partition.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams import metrics

log = logging.getLogger(__name__)

LOOK_S = 5.0
_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Look:
    """The group's offsets and lag at one moment."""

    committed: int  # sum of the group's offsets
    lag: int  # messages not committed
    lags: dict[tuple[str, int], int]


@dataclass
class Standstill:
    """Decides from the latest looks whether the group makes no progress. Times are seconds of a steady clock."""

    limit_s: float
    since_s: float | None = None
    committed: int = -1
    lag: int = 0

    def seen(self, look: Look, busy: bool, now_s: float) -> bool:
        """Returns whether the group made no progress for too long while its lag grew. `busy`: it waits for others."""
        if look.committed != self.committed or look.lag == 0 or busy:
            self.since_s, self.committed, self.lag = now_s, look.committed, look.lag
            return False
        since = now_s if self.since_s is None else self.since_s
        return now_s - since > self.limit_s and look.lag > self.lag


class Watchdog:
    """A thread that checks the group's lag until `close`, and calls `bark` with the reason when the worker must end.

    `excuse` returns whether the worker waits for others, for instance for sinks with the in-process broker.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        limit_s: float,
        assigned: Callable[[], set[int]],
        excuse: Callable[[], bool],
        bark: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._standstill = Standstill(limit_s)
        self._assigned = assigned
        self._excuse = excuse
        self._bark = bark
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        reader = consumer(self._settings, STREAMS_GROUP)
        while not self._stop.wait(LOOK_S):
            try:
                look = look_at(reader)
            except KafkaException as error:
                log.warning("cannot read the lag from Kafka: %s", error)
                continue
            for (topic, partition), lag in look.lags.items():
                metrics.LAG.labels(topic, str(partition)).set(lag)
            if self._standstill.seen(look, self._excuse(), time.monotonic()):
                self._bark(RuntimeError(self._reason(look)))
                return
        reader.close()

    def _reason(self, look: Look) -> str:
        assigned = sorted(self._assigned())
        mine = f"partitions {assigned}" if assigned else "no partition"
        return (
            f"nothing of {RAW} and {ACTIVITY} was processed for {self._standstill.limit_s:.0f} s, and {look.lag}"
            f" messages wait; this worker has {mine}. It ends now and should be started again"
        )


def look_at(reader: Consumer) -> Look:
    """Asks Kafka for the group's offsets and lag. Raises KafkaException."""
    committed, lags = 0, {}
    for topic in (RAW, ACTIVITY):
        partitions = reader.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        positions = reader.committed([TopicPartition(topic, partition) for partition in partitions], timeout=_TIMEOUT_S)
        for position in positions:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, position.partition), timeout=_TIMEOUT_S)
            offset = max(position.offset, low, 0)
            committed += offset
            lags[topic, position.partition] = max(high - offset, 0)
    return Look(committed, sum(lags.values()), lags)
