"""Whether a consumer group can do its work, as far as Kafka knows: what `/readyz` of streams and sinks tells."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from icestream.kafka.clients import committed_positions, consumer
from icestream.settings import KafkaSettings

log = logging.getLogger(__name__)

LOOK_S = 5.0
STANDSTILL_S = 30.0
"""A part is not ready when it has made no progress for so long while its lag grew."""
_TIMEOUT_S = 5.0


Partition = tuple[str, int]
"""Topic and number."""
LogRange = tuple[int, int]
"""Kafka has the messages with offsets in [low, high)."""


@dataclass(frozen=True)
class GroupOffsets:
    """A group's offsets and lag at one moment, by partition; without those of which no leader answers."""

    committed: dict[Partition, int]  # the group's offsets
    lags: dict[Partition, int]  # messages that are not committed
    leaderless: tuple[Partition, ...] = ()
    cluster: str = ""
    """The ID of the Kafka cluster."""

    @property
    def problem(self) -> str | None:
        """Says of which partitions no leader answers; None where all do."""
        return f"no leader answers for {_named(self.leaderless)}" if self.leaderless else None


@dataclass
class Standstill:
    """Measures for how long there has been no progress while the lag grew. Times are seconds of a steady clock."""

    _since_s: float = 0.0
    _progress: object = None
    _lag: int = 0

    def seconds(self, progress: object, lag: int, excused: bool, now_s: float) -> float:
        """Takes what Kafka says at this moment; returns how long there has been no progress.

        Any change of `progress` is progress. The time starts again when there is no more lag than at the last progress,
        and while the part is `excused`: it waits for others.
        """
        if progress != self._progress or lag <= self._lag or excused:
            self._since_s, self._progress, self._lag = now_s, progress, lag
        return now_s - self._since_s


class Standstills:
    """For how long a whole group, and each partition that this process has, have made no progress while lag grew.

    Each process reports only its own partitions. The whole group is watched as well, because after a rebalance Faust
    can stay in a state in which no process has any partition.
    """

    def __init__(self) -> None:
        self._group = Standstill()
        self._own: dict[Partition, Standstill] = {}
        self._seconds: dict[Partition | None, float] = {}  # None: of the group
        self._lags: dict[Partition, int] = {}

    def update(self, offsets: GroupOffsets, own: Mapping[Partition, int | None], now_s: float) -> None:
        """Takes the offsets of one moment. `own`: the partitions of this process, and the work that it did on them
        beside offsets; None for one that waits for others. The time of a partition starts when the process gets it.

        The group is excused with any of them: what it waits for may be all that there is to do.
        """
        self._lags = offsets.lags
        self._own = {partition: self._own.get(partition, Standstill()) for partition in own}
        progress = (offsets.committed, sum(work or 0 for work in own.values()))
        excused = None in own.values()
        self._seconds = {None: self._group.seconds(progress, sum(offsets.lags.values()), excused, now_s)}
        for partition, standstill in self._own.items():
            work = own[partition]
            progress_of_it = (offsets.committed.get(partition), work)
            lag = offsets.lags.get(partition, 0)
            self._seconds[partition] = standstill.seconds(progress_of_it, lag, work is None, now_s)

    def longer_than(self, limit_s: float) -> str | None:
        """Says what has stood still for longer; None where nothing has."""
        standing = {partition: seconds for partition, seconds in self._seconds.items() if seconds > limit_s}
        if not standing:
            return None
        if None in standing:
            what, waiting = ", ".join(sorted({topic for topic, _ in self._lags})), sum(self._lags.values())
        else:
            partitions = [partition for partition in standing if partition is not None]
            what, waiting = _named(partitions), sum(self._lags[partition] for partition in partitions)
        seconds = max(standing.values())
        return f"nothing of {what} was processed for {seconds:.0f} s, and {waiting:,} messages wait"


class GroupWatch:
    """A thread that asks Kafka for a group's offsets and lag at once and every 5 seconds, until `close`."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topics: Sequence[str],
        *,
        own: Callable[[], Mapping[Partition, int | None]] = dict,
        collects_s: float = 0.0,
        on_offsets: Callable[[GroupOffsets, Standstills], None] = lambda offsets, standstills: None,
    ) -> None:
        """`own`: see Standstills. `collects_s`: how long the part collects messages before it commits them.
        `on_offsets` is called with each answer of Kafka."""
        self._settings = settings
        self._group = group
        self._topics = topics
        self._own = own
        self._limit_s = STANDSTILL_S + 2 * collects_s
        self._on_offsets = on_offsets
        self._problem: str | None = f"Kafka at {settings.kafka} has not answered yet"
        self._was_ready = False
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
        reader: Consumer | None = None
        standstills = Standstills()
        while not self._stop.is_set():
            try:
                # The problem says that there is no Kafka.
                reader = reader or consumer(self._settings, self._group, log_level=2)
                offsets = read_offsets(reader, self._topics)
            except KafkaException as error:
                self._set_problem(f"Kafka at {self._settings.kafka} cannot be reached: {error.args[0].str()}")
                standstills = Standstills()  # without Kafka nobody makes progress
            else:
                standstills.update(offsets, self._own(), time.monotonic())
                problems = offsets.problem, standstills.longer_than(self._limit_s)
                self._set_problem("; ".join(filter(None, problems)) or None)
                self._on_offsets(offsets, standstills)
            self._stop.wait(LOOK_S)
        if reader is not None:
            reader.close()

    def _set_problem(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            log.warning("%s is not ready: %s", self._group, problem)
        elif problem is None and self._problem is not None and self._was_ready:
            log.info("%s is ready again", self._group)
        self._problem = problem
        self._was_ready |= problem is None


def read_offsets(reader: Consumer, topics: Sequence[str]) -> GroupOffsets:
    """Asks Kafka for the offsets and the lag of the reader's group. Raises KafkaException."""
    described = {topic: reader.list_topics(topic, timeout=_TIMEOUT_S) for topic in topics}
    leaders = {
        (topic, number): partition.leader
        for topic, metadata in described.items()
        for number, partition in metadata.topics[topic].partitions.items()
    }
    cluster = next((str(metadata.cluster_id or "") for metadata in described.values()), "")
    partitions = [TopicPartition(*partition) for partition in leaders]
    positions = {(p.topic, p.partition): p.offset for p in committed_positions(reader, partitions, _TIMEOUT_S)}
    try:
        ends = _ends(reader, partitions)
    except KafkaException as error:
        log.debug("not all leaders of %s answer: %s", ", ".join(topics), error)
        ends = _ends_one_by_one(reader, leaders)
    committed = {partition: max(positions[partition], low, 0) for partition, (low, _) in ends.items()}
    lags = {partition: max(high - committed[partition], 0) for partition, (_, high) in ends.items()}
    leaderless = tuple(partition for partition in leaders if partition not in ends)
    return GroupOffsets(committed, lags, leaderless, cluster)


def _ends(reader: Consumer, partitions: Sequence[TopicPartition]) -> dict[Partition, LogRange]:
    """Asks each leader for all its partitions at once. Raises KafkaException where one does not answer."""
    answers = []
    for end in (OFFSET_BEGINNING, OFFSET_END):  # Kafka's ListOffsets takes them in place of times
        wanted = [TopicPartition(each.topic, each.partition, end) for each in partitions]
        answers.append(reader.offsets_for_times(wanted, timeout=_TIMEOUT_S))
    for answer in chain.from_iterable(answers):
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {(low.topic, low.partition): (low.offset, high.offset) for low, high in zip(*answers, strict=True)}


def _ends_one_by_one(reader: Consumer, leaders: Mapping[Partition, int]) -> dict[Partition, LogRange]:
    """Leaves out the partitions of leaders that do not answer."""
    found: dict[Partition, LogRange] = {}
    silent: set[int] = set()  # each is waited for once
    for partition, leader in leaders.items():
        if leader in silent:
            continue
        try:
            ends = reader.get_watermark_offsets(TopicPartition(*partition), timeout=_TIMEOUT_S)
        except KafkaException as error:
            log.debug("the leader %d of %s does not answer: %s", leader, _named([partition]), error)
            ends = None
        if ends is None:
            silent.add(leader)
        else:
            found[partition] = ends
    return found


def _named(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(partitions))
