"""Where a replay reads from: the messages of icestream.raw and icestream.activity of a time range."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from icestream.kafka import consumer
from icestream.settings import KafkaSettings
from icestream.times import format_unix_nano
from icestream.topics import RAW
from sinks import archive
from sinks.archive import LATE_NS, Archived, archived

_ASK_S = 10.0
_SILENT_S = 30.0
_EARLY_MS = 60_000
"""A message may carry a time a little before the end of its window, where a host's clock was set back."""


class SourceError(Exception):
    """The range cannot be read; the message says what to do."""


@dataclass(frozen=True)
class ArchiveSource:
    """The raw archive, see sinks.archive."""

    folder: Path

    def __str__(self) -> str:
        return f"the archive {self.folder}"

    def read(self, topic: str, from_unix_nano: int, to_unix_nano: int) -> Iterator[Archived]:
        """Messages with something in [from, to). Raises OSError."""
        return archive.read(self.folder, topic, from_unix_nano, to_unix_nano)


@dataclass(frozen=True)
class KafkaSource:
    """Kafka by its messages' times: what was published until two hours after the range."""

    settings: KafkaSettings

    def __str__(self) -> str:
        return f"Kafka at {self.settings.kafka}"

    def read(self, topic: str, from_unix_nano: int, to_unix_nano: int) -> Iterator[Archived]:
        """Messages with something in [from, to), by partition and offset. Raises SourceError."""
        reader = consumer(self.settings, "icestream.replay", log_level=2)
        try:
            cluster = str(reader.list_topics(timeout=_ASK_S).cluster_id)
            for begin, end in self._places(reader, topic, from_unix_nano // 10**6 - _EARLY_MS):
                reader.assign([begin])
                yield from _until(reader, cluster, end, from_unix_nano, to_unix_nano)
        except KafkaException as error:
            raise SourceError(f"{self}: {error.args[0].str()}") from error
        finally:
            reader.close()

    def _places(self, reader: Consumer, topic: str, from_ms: int) -> list[tuple[TopicPartition, int]]:
        """Of each partition where to begin, and the offset of its end."""
        partitions = reader.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
        begins = [TopicPartition(topic, number, max(from_ms, 0)) for number in sorted(partitions)]
        if not self.settings.kafka_in_process:  # the in-process broker knows no offsets by time
            begins = reader.offsets_for_times(begins, timeout=_ASK_S)
        places = []
        for begin in begins:
            low, high = reader.get_watermark_offsets(begin, timeout=_ASK_S)
            first = low if self.settings.kafka_in_process else begin.offset
            if 0 <= first < high:
                places.append((TopicPartition(topic, begin.partition, first), high))
        return places


Source = ArchiveSource | KafkaSource


def choose(kind: str, settings: KafkaSettings, folder: Path | None, from_unix_nano: int) -> Source:
    """`kind`: kafka, archive, or auto: the archive where it reaches back far enough, else Kafka. Raises SourceError."""
    covered = archive.covers(folder, RAW) if folder is not None and folder.is_dir() else None
    if kind == "archive" and covered is None:
        raise SourceError(f"there is no archive in {folder or 'no folder'}: give --archive, or --source kafka")
    reaches = covered is not None and covered[0] <= from_unix_nano
    if folder is not None and (kind == "archive" or (kind == "auto" and reaches)):
        return ArchiveSource(folder)
    return KafkaSource(settings)


def _until(reader: Consumer, cluster: str, end: int, from_unix_nano: int, to_unix_nano: int) -> Iterator[Archived]:
    """Messages of the one partition that is assigned, up to offset `end`."""
    heard = time.monotonic()
    while True:
        message = reader.poll(1.0)
        if message is None:
            if time.monotonic() - heard > _SILENT_S:
                raise SourceError(f"Kafka did not answer for {_SILENT_S:.0f} s, before offset {end}")
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        heard = time.monotonic()
        found = archived(message, cluster)
        if found.timestamp_ms * 10**6 > to_unix_nano + LATE_NS:
            return
        if found.end_unix_nano >= from_unix_nano and found.start_unix_nano < to_unix_nano:
            yield found
        if found.offset >= end - 1:
            return


def shown(from_unix_nano: int, to_unix_nano: int) -> str:
    """A range for people."""
    return f"{format_unix_nano(from_unix_nano)} to {format_unix_nano(to_unix_nano)}"
