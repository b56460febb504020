"""The cut: where a job stops reading. What arrived later is left to the live pipeline.

A job takes the ends of the topics when it begins, and waits until the live pipeline has stored everything before them.
So each message is either stored already, or left to the pipeline: the two never store one message at the same time.
Where no part of the pipeline has begun, there is nothing to wait for; the job ends with an error if one begins
meanwhile. Where stream processors have begun and a sink has not, the job waits for the sink as well: a sink that begins
later would skip the batches of which the job stored only the part in its range.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from icestream.kafka.clients import client_config, committed_positions, consumer, unread
from icestream.process.progress import Progress
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, LAKE_GROUP, RAW, SAMPLES, STREAMS_GROUP
from jobs.job import JobError
from sinks.archive.archive import Wanted
from sinks.settings import StorageSettings

log = logging.getLogger(__name__)

WAIT_S = 60.0
"""How long a job waits for the pipeline."""
LAKE_MORE_S = 120.0
"""How much longer it waits for the lake sink, which collects rows for a minute before it writes them."""
_POLL_S = 0.5
_SURE_S = 20.0
"""How long a job keeps asking whether a part of the pipeline has begun, while Kafka does not answer."""
_WITHOUT_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True)
class _PipelinePart:
    """A part of the pipeline that a job waits for."""

    group: str
    name: str
    start: str = ""
    """What to do if it has never read this Kafka."""
    more_s: float = 0.0
    """How much longer a job waits for it, once it has begun."""


_STREAMS = _PipelinePart(STREAMS_GROUP, "the stream processors")
_CLICKHOUSE = _PipelinePart(CLICKHOUSE_GROUP, "the ClickHouse sink", "start it (icestream sink clickhouse)")
_LAKE = _PipelinePart(
    LAKE_GROUP,
    "the lake sink",
    "start it (icestream sink lake, or up with --lake), or leave out --lake (ICESTREAM_LAKE): then the job"
    " leaves the lake as it is",
    LAKE_MORE_S,
)

Ends = Mapping[int, int]
"""The end offset of each partition."""


class KnownMessages(NamedTuple):
    """Messages that were archived, or batches that were stored, before a cut."""

    topic: str
    cluster: str
    partition: int
    end: int  # of their offsets
    file: str = ""  # of the archive; "": they are stored


@dataclass(frozen=True)
class ReadLimits:
    """The messages that a job may read: all of other clusters, and those before the ends in this one.

    In this cluster, an offset at or behind an end may also be that of an earlier message: the topic was made anew since
    then, or Kafka has lost its last messages, or was put back to an old copy.
    """

    cluster: str = ""
    ends: Mapping[str, Ends] = field(default_factory=dict)  # by topic
    archived: frozenset[str] = frozenset()
    """The files with offsets behind an end that the archive had when the ends were taken."""
    stored: Mapping[str, Ends] = field(default_factory=dict)
    """Where the offsets end of batches behind an end that were stored when the ends were taken, by topic."""
    absent: tuple[_PipelinePart, ...] = ()
    """The parts of the pipeline that had not begun to read these messages."""

    def includes(self, topic: str, cluster: str, partition: int, offset: int, file: str = "") -> bool:
        """Whether a job may read a message. `file`: of the archive that it is in."""
        before = cluster != self.cluster or offset < self.ends.get(topic, {}).get(partition, 0)
        return before or file in self.archived

    def was_stored(self, topic: str, cluster: str, partition: int, offset: int) -> bool:
        """Whether a batch was stored before the cut. If there were batches behind the end, new ones count as well."""
        before = self.includes(topic, cluster, partition, offset)
        return before or offset < self.stored.get(topic, {}).get(partition, 0)

    def wanted(self, topic: str) -> Wanted:
        """Returns `includes` as the archive asks for it."""
        return lambda file, cluster, partition, offset: self.includes(topic, cluster, partition, offset, file)


NO_CUT = ReadLimits()


def take_cut(
    settings: StorageSettings, progress: Progress, wait_s: float = WAIT_S, known: Iterable[KnownMessages] = ()
) -> ReadLimits:
    """Returns the cut, as soon as the pipeline has stored everything before it. Raises JobError if that takes too long.

    `known`: what was archived and stored before the cut. If Kafka cannot be reached, no pipeline is taken to run, and
    there is no cut.
    """
    timeout_s = settings.kafka_timeout_s
    reader = consumer(settings, STREAMS_GROUP, log_level=2)  # does not log that there is no Kafka
    try:
        try:
            cluster = str(reader.list_topics(timeout=timeout_s).cluster_id)
        except KafkaException as error:
            log.warning("reads up to the end: Kafka at %s: %s", settings.kafka, error.args[0].str())
            return NO_CUT
        # A collector sends the activity of a window before its samples: so no activity of these samples comes later.
        ends = {topic: _ends(reader, topic, timeout_s) for topic in (RAW, ACTIVITY)}
        live = _has_begun(settings, STREAMS_GROUP, ends)
        wait = partial(_wait, settings, progress, live, wait_s)
        if live:
            wait(_STREAMS, ends)
        stored = {topic: _ends(reader, topic, timeout_s) for topic in (SAMPLES, ACTIVITY)}
        wait(_CLICKHOUSE, stored)
        if settings.lake:
            wait(_LAKE, stored)
        readers = (_STREAMS, _CLICKHOUSE, *([_LAKE] if settings.lake else []))
        cut = _cut(cluster, ends, known)
        if live or all(_is_empty(reader, topic, of, timeout_s) for topic, of in ends.items()):
            return cut
        return replace(cut, absent=tuple(each for each in readers if not _has_begun(settings, each.group, ends)))
    except KafkaException as error:
        raise _again(settings, error) from error
    finally:
        reader.close()


def _cut(cluster: str, ends: Mapping[str, Ends], known: Iterable[KnownMessages]) -> ReadLimits:
    """Returns a cut at these ends; what is behind them and `known` before is of an earlier log."""
    archived: set[str] = set()
    stored: dict[str, dict[int, int]] = {}
    for one in known:
        if one.end > ends[one.topic].get(one.partition, 0):
            if one.file:
                archived.add(one.file)
            elif one.cluster == cluster:
                of_topic = stored.setdefault(one.topic, {})
                of_topic[one.partition] = max(one.end, of_topic.get(one.partition, 0))
    return ReadLimits(cluster, ends, frozenset(archived), stored)


def check_cut(settings: StorageSettings, cut: ReadLimits) -> None:
    """Raises JobError if a part of the pipeline has begun since a cut at which it had not: the messages before the cut
    may be stored by a sink while the job stores the same."""
    deadline = time.monotonic() + _SURE_S
    for part in cut.absent:
        if _has_begun_by_now(settings, part.group, cut.ends, deadline):
            raise JobError(
                f"{part.name} began to read this Kafka while the job ran, so a sink may have stored what the job"
                " stored: start the job again, which replaces both"
            )


def _has_begun_by_now(settings: StorageSettings, group: str, ends: Mapping[str, Ends], deadline: float) -> bool:
    """Asks as `_has_begun`, and again while Kafka fails. Raises JobError if it fails after `deadline`, too."""
    while True:
        try:
            return _has_begun(settings, group, ends, deadline)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise _again(settings, error) from error
            time.sleep(_POLL_S)


def _again(settings: StorageSettings, error: KafkaException) -> JobError:
    return JobError(f"Kafka at {settings.kafka}: {error.args[0].str()}: start the job again")


def _wait(
    settings: StorageSettings,
    progress: Progress,
    live: bool,
    wait_s: float,
    what: _PipelinePart,
    ends: Mapping[str, Ends],
) -> None:
    """Waits until the reader has committed up to these ends; where no pipeline is `live`, only if it has begun.

    Raises JobError and KafkaException.
    """
    begun = _has_begun(settings, what.group, ends)
    if not live and not begun:
        return
    reader = consumer(settings, what.group, log_level=2)
    started = time.monotonic()
    try:
        while lag := sum(_lag(settings, reader, topic, of) for topic, of in ends.items()):
            progress(0.0, f"waits for {what.name}{'' if begun else ', which has not begun'}: {lag} messages")
            waited_s = time.monotonic() - started
            if waited_s >= wait_s:
                begun = begun or _has_begun(settings, what.group, ends)
                if not begun:
                    raise JobError(
                        f"{what.name} has never read from this Kafka, but stream processors have: {what.start}"
                    )
                if waited_s >= wait_s + what.more_s * (wait_s > 0):
                    raise JobError(
                        f"{what.name}: a lag of {lag} messages: wait until it is smaller, and start the job again"
                    )
            time.sleep(_POLL_S)
    finally:
        reader.close()


def _lag(settings: StorageSettings, reader: Consumer, topic: str, ends: Ends) -> int:
    """Returns how many messages before the ends the reader's group has not committed."""
    timeout_s = settings.kafka_timeout_s
    commits = _commits(settings, reader, topic, ends)
    lags: dict[int, int] = {}
    waiting = []
    for number, end in ends.items():
        if commits[number] < end:
            low, _ = _watermarks(reader, topic, number, timeout_s)
            first = max(commits[number], low)
            lags[number] = max(end - first, 0)
            waiting.append(TopicPartition(topic, number, first))
    # Offsets of the marks of transactions are never committed: does a message come before the end?
    return sum(lags[place.partition] for place in unread(settings, waiting)) if waiting else 0


def _commits(settings: StorageSettings, reader: Consumer, topic: str, ends: Ends) -> Ends:
    """Returns the offsets that the reader's group has committed; negative: none."""
    partitions = [TopicPartition(topic, number) for number in ends]
    positions = committed_positions(reader, partitions, settings.kafka_timeout_s)
    return {position.partition: position.offset for position in positions}


def _has_begun(settings: StorageSettings, group: str, ends: Mapping[str, Ends], deadline: float = 0.0) -> bool:
    """Whether the group has committed something of these topics, or may be about to.

    Where Kafka cannot say so, as while it loads its groups after a restart, it is asked again until `deadline`
    (time.monotonic()); then the group is taken to be there.
    """
    with closing(consumer(settings, group, log_level=2)) as reader:
        commits = [offset for topic, of in ends.items() for offset in _commits(settings, reader, topic, of).values()]
    if any(offset >= 0 for offset in commits):
        return True
    while (exists := _exists(settings, group)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return exists is not False


def _exists(settings: StorageSettings, group: str) -> bool | None:
    """Whether there is such a group, None if Kafka cannot say so now. It may not have committed anything yet, and
    nobody may be in it at the moment, because its process was killed."""
    admin = AdminClient(client_config(settings) | {"log_level": 2})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=settings.kafka_timeout_s)[group].result()
    except KafkaException as error:
        none = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError._UNSUPPORTED_FEATURE)
        return False if error.args[0].code() in none else None
    return bool(described.state != ConsumerGroupState.DEAD)


def _ends(reader: Consumer, topic: str, timeout_s: float) -> Ends:
    numbers: Iterable[int] = reader.list_topics(topic, timeout=timeout_s).topics[topic].partitions
    return {number: _watermarks(reader, topic, number, timeout_s)[1] for number in numbers}


def _is_empty(reader: Consumer, topic: str, ends: Ends, timeout_s: float) -> bool:
    """Whether no message is before these ends."""
    return all(_watermarks(reader, topic, number, timeout_s)[0] >= end for number, end in ends.items())


def _watermarks(reader: Consumer, topic: str, number: int, timeout_s: float) -> tuple[int, int]:
    """Returns the first offset of a partition, and its end. Raises KafkaException."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s)
            return low, high
        except KafkaException as error:  # a partition is without a leader for moments, as after a restart of a broker
            if error.args[0].code() not in _WITHOUT_LEADER or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
