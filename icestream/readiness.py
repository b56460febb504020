"""Whether a consumer group can do its work, as far as Kafka knows: what `/readyz` of streams and sinks tells."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from icestream.kafka import committed_positions, consumer
from icestream.settings import KafkaSettings

log = logging.getLogger(__name__)

LOOK_S = 5.0
STANDSTILL_S = 30.0
"""A part is not ready when it has made no progress for so long while its lag grew."""
_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Look:
    """A group's offsets and lag at one moment."""

    committed: int  # sum of the group's offsets
    lags: dict[tuple[str, int], int]  # (topic, partition) -> messages that are not committed

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


@dataclass
class Standstill:
    """Measures for how long a group has made no progress while its lag grew. Times are seconds of a steady clock."""

    _since_s: float = 0.0
    _progress: object = None
    _lag: int = 0

    def seconds(self, look: Look, work: int, excused: bool, now_s: float) -> float:
        """Takes a look; returns how long there has been no progress.

        Progress is any change of the group's offsets, or of `work`: what the part has done beside them. The time starts
        again when there is no more lag than at the last progress, and while the part is `excused`: it waits for others.
        """
        progress = (look.committed, work)
        if progress != self._progress or look.lag <= self._lag or excused:
            self._since_s, self._progress, self._lag = now_s, progress, look.lag
        return now_s - self._since_s


class GroupWatch:
    """A thread that asks Kafka for a group's offsets and lag at once and every 5 seconds, until `close`."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topics: Sequence[str],
        *,
        work: Callable[[], int] = lambda: 0,
        excused: Callable[[], bool] = lambda: False,
        collects_s: float = 0.0,
        looked: Callable[[Look, float], None] = lambda look, standstill_s: None,
    ) -> None:
        """`work`, `excused`: see Standstill. `collects_s`: how long the part collects messages before it commits them.
        `looked` is called after every look, with the seconds without progress."""
        self._settings = settings
        self._group = group
        self._topics = topics
        self._work = work
        self._excused = excused
        self._limit_s = STANDSTILL_S + 2 * collects_s
        self._looked = looked
        self._problem: str | None = f"Kafka at {settings.kafka} has not answered yet"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {group}", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why the group cannot do its work, for `/readyz`; None when it can."""
        return self._problem

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        reader = consumer(self._settings, self._group, log_level=2)  # the problem says that there is no Kafka
        standstill = Standstill()
        while not self._stop.is_set():
            try:
                look = look_at(reader, self._topics)
            except KafkaException as error:
                self._tell(f"Kafka at {self._settings.kafka} cannot be reached: {error.args[0].str()}")
                standstill = Standstill()  # without Kafka nobody makes progress
            else:
                seconds = standstill.seconds(look, self._work(), self._excused(), time.monotonic())
                self._tell(self.standing_still(look, seconds) if seconds > self._limit_s else None)
                self._looked(look, seconds)
            self._stop.wait(LOOK_S)
        reader.close()

    def standing_still(self, look: Look, seconds: float) -> str:
        """Says that there was no progress."""
        return f"nothing of {', '.join(self._topics)} was processed for {seconds:.0f} s, and {look.lag:,} messages wait"

    def _tell(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            log.warning("not ready: %s", problem)
        self._problem = problem


def look_at(reader: Consumer, topics: Sequence[str]) -> Look:
    """Asks Kafka for the offsets and the lag of the reader's group. Raises KafkaException."""
    committed, lags = 0, {}
    for topic in topics:
        numbers = reader.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        partitions = [TopicPartition(topic, number) for number in numbers]
        for position in committed_positions(reader, partitions, _TIMEOUT_S):
            low, high = reader.get_watermark_offsets(TopicPartition(topic, position.partition), timeout=_TIMEOUT_S)
            offset = max(position.offset, low, 0)
            committed += offset
            lags[topic, position.partition] = max(high - offset, 0)
    return Look(committed, lags)
