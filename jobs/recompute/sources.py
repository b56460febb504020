"""Sources of a job: where it reads the messages of icestream.raw and icestream.activity of a time range from."""

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from icestream.kafka.clients import consumer
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.settings import KafkaSettings, MessageSettings
from icestream.times import HOUR_NS
from icestream.topics import ACTIVITY, RAW, REPLAY_GROUP
from jobs.recompute.cut import NO_CUT, ReadLimits
from jobs.time_range import JobTimeRange
from sinks.archive import archive
from sinks.archive.archive import Archived, ArchivedRun, ArchiveSink, OnDamage, archived, raise_damage
from sinks.runner.ranges import InFlight, MessageRange
from streams.logs.log_reader import read_with

_ANSWER_TIMEOUT_S = 10.0
_CHUNK_BYTES = 16_000_000
_LATE_NS = 2 * HOUR_NS
"""How long after the range messages of Kafka are read, by Kafka's times."""
_EARLY_MS = 60_000
"""A message may have a time a little before the end of its window, if the clock of a host was set back."""


class SourceError(Exception):
    """The range cannot be read; the message says what to do."""


@dataclass(frozen=True)
class ArchiveSource:
    """The raw archive, see sinks/archive/archive.py, up to the cut."""

    uri: str
    cut: ReadLimits = NO_CUT
    copy_of: str = ""
    limits: TimeLimits = ANY_LIMITS
    """The limits of times in messages: those of live processing, so that a job takes the same messages."""

    def __str__(self) -> str:
        return self.copy_of or f"the archive {self.uri}"

    def partitions(self, time_range: JobTimeRange) -> list[int]:
        """Returns the partitions that may have messages of the range."""
        start, end = time_range.start_unix_nano, time_range.end_unix_nano
        return sorted({n for topic in (RAW, ACTIVITY) for n in archive.partitions(self.uri, topic, start, end)})

    def moved_runs(self, time_range: JobTimeRange) -> set[ArchivedRun]:
        """Returns the runs of collectors that may be in several partitions. Raises OSError or ValueError."""
        return archive.moved_runs(self.uri, (RAW, ACTIVITY), time_range.start_unix_nano, time_range.end_unix_nano)

    def read(
        self, topic: str, time_range: JobTimeRange, partition: int | None, on_damage: OnDamage = raise_damage
    ) -> Iterator[Archived]:  # fmt: skip
        """Yields the messages with something in the range, up to the cut. Raises OSError or ValueError. `partition`:
        None for all; `on_damage`: as in sinks/archive/archive.py."""
        start, end = time_range.start_unix_nano, time_range.end_unix_nano
        return archive.read(self.uri, topic, start, end, partition, on_damage, self.cut.wanted(topic))

    def size(self, time_range: JobTimeRange) -> str:
        """Returns for people how much a job reads. Raises OSError or ValueError."""
        start, end = time_range.start_unix_nano, time_range.end_unix_nano
        files = sum(archive.partitions(self.uri, topic, start, end).total() for topic in (RAW, ACTIVITY))
        return f"up to {files:,} files"


@dataclass(frozen=True)
class _OffsetRange:
    """The messages of a partition from offset `first` up to, not including, offset `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class KafkaSource:
    """Kafka. It finds messages by their Kafka times, up to two hours after the range."""

    settings: KafkaSettings
    cut: ReadLimits = NO_CUT
    limits: TimeLimits = ANY_LIMITS

    def __str__(self) -> str:
        return f"Kafka at {self.settings.kafka}"

    def read(self, topic: str, time_range: JobTimeRange) -> Iterator[Archived]:
        """Yields the messages with something in the range, by partition and offset. Raises SourceError."""
        reader = consumer(self.settings, REPLAY_GROUP, log_level=2, **{"enable.partition.eof": True})
        try:
            cluster = str(reader.list_topics(timeout=_ANSWER_TIMEOUT_S).cluster_id)
            for offsets in self._offset_ranges(reader, topic, time_range):
                messages = read_with(reader, topic, offsets.partition, offsets.first, offsets.end)
                yield from _in_range(messages, cluster, time_range)
        except KafkaException as error:
            raise SourceError(f"{self}: {error.args[0].str()}") from error
        finally:
            reader.close()

    def copy(self, folder: str, time_range: JobTimeRange) -> ArchiveSource:
        """Copies the messages of the range into an archive in `folder`. Raises SourceError and OSError.

        So Kafka is read once, in the order of its offsets, while a job reads by time and in several processes.
        """
        for topic in (RAW, ACTIVITY):
            for chunk in _chunks(self.read(topic, time_range)):
                first, last = chunk[0], chunk[-1]
                offsets = InFlight.new(first.offset, last.offset)
                ArchiveSink(folder).write(MessageRange(first.cluster, topic, first.partition, offsets, chunk, False))
        return ArchiveSource(folder, self.cut, str(self), self.limits)

    def size(self, time_range: JobTimeRange) -> str:
        """Returns for people how much a job reads. Raises SourceError."""
        reader = consumer(self.settings, REPLAY_GROUP, log_level=2)
        try:
            ranges = [one for topic in (RAW, ACTIVITY) for one in self._offset_ranges(reader, topic, time_range)]
        except KafkaException as error:
            raise SourceError(f"{self}: {error.args[0].str()}") from error
        finally:
            reader.close()
        return f"up to {sum(one.end - one.first for one in ranges):,} messages"

    def _offset_ranges(self, reader: Consumer, topic: str, time_range: JobTimeRange) -> list[_OffsetRange]:
        """Returns what to read of each partition that may have messages of the range."""
        partitions = reader.list_topics(topic, timeout=_ANSWER_TIMEOUT_S).topics[topic].partitions
        first_unix_milli = max(time_range.start_unix_nano // 10**6 - _EARLY_MS, 0)
        starts = [TopicPartition(topic, number, first_unix_milli) for number in sorted(partitions)]
        if not self.settings.kafka_in_process:  # the in-process broker cannot look up offsets by time
            starts = reader.offsets_for_times(starts, timeout=_ANSWER_TIMEOUT_S)
        ranges = []
        for start in starts:
            low, high = reader.get_watermark_offsets(start, timeout=_ANSWER_TIMEOUT_S)
            first = low if self.settings.kafka_in_process else start.offset
            end = min(high, self.cut.ends.get(topic, {}).get(start.partition, high))
            if 0 <= first < end:
                ranges.append(_OffsetRange(start.partition, first, end))
        return ranges


Source = ArchiveSource | KafkaSource


def choose(kind: str, settings: MessageSettings, uri: str, start_unix_nano: int, cut: ReadLimits) -> Source:
    """Returns the source that `kind` names: kafka, archive, or auto. `uri`: of the archive; "": there is none.

    auto is the archive if that goes back to `start_unix_nano`, else Kafka. Raises SourceError, OSError or ValueError.
    """
    covered = archive.covers(uri, RAW) if uri and kind != "kafka" else None
    if kind == "archive" and covered is None:
        raise SourceError(f"there is no archive in {uri or 'no folder'}: give --archive, or --source kafka")
    limits = TimeLimits.from_settings(settings)
    goes_back = covered is not None and covered[0] <= start_unix_nano
    if kind == "archive" or (kind == "auto" and goes_back):
        return ArchiveSource(uri, cut, limits=limits)
    return KafkaSource(settings, cut, limits)


def _chunks(messages: Iterator[Archived]) -> Iterator[list[Archived]]:
    """Yields runs of messages of one partition, none much larger than _CHUNK_BYTES."""
    chunk: list[Archived] = []
    size = 0
    for message in messages:
        if chunk and (message.partition != chunk[0].partition or size > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.value)
    if chunk:
        yield chunk


def _in_range(messages: Iterator[Message], cluster: str, time_range: JobTimeRange) -> Iterator[Archived]:
    """Yields the messages of the range; ends with the first one that came too late for it."""
    for message in messages:
        row = archived(message, cluster)
        if row.timestamp_ms * 10**6 > time_range.end_unix_nano + _LATE_NS:
            return
        if row.end_unix_nano >= time_range.start_unix_nano and row.start_unix_nano < time_range.end_unix_nano:
            yield row
