"""The raw archive: icestream.raw and icestream.activity as they came, in Parquet files, to replay from years later.

    ARCHIVE/TOPIC/date=2026-01-31/hour=13/CLUSTER-PARTITION-FIRST-LAST.parquet

The hour is that of a message's end (what it saw last), UTC. A file is written aside, synced, and renamed to a name made
of its range of offsets: a range written again replaces its own files, and a reader never sees half of one.
"""

import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Message

from icestream import atomic_file, packed
from icestream.topics import ACTIVITY, ARCHIVE_GROUP, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId
from icestream.v1.raw_pb2 import RawBatch
from sinks import metrics
from sinks.ranges import Range
from sinks.tables.arrow import MAX_UNIX_NANO, BadMessage, parse

LATE_NS = 2 * 3600 * 10**9
"""An interval of activity may end that long after a time range that it began in, and is still found for it."""
_HOUR_NS = 3600 * 10**9
_DAY_NS = 24 * _HOUR_NS
_CLEAN_S = 3600.0


@dataclass(frozen=True)
class Archived:
    """A message; of one that cannot be decoded the batch is empty and the times are Kafka's."""

    cluster: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    parts: int
    start_unix_nano: int  # the window of a raw batch; of activity from the first start to the last end
    end_unix_nano: int


class ArchiveSink:
    """Writes ranges of messages to files. Used by one thread."""

    name = "archive"
    group = ARCHIVE_GROUP
    topics: tuple[str, ...] = (RAW, ACTIVITY)
    keeps_ranges = True

    def __init__(self, folder: Path, keep_days: int = 0) -> None:
        """`keep_days`: older days are deleted; 0: none."""
        self._folder = folder
        self._keep_days = keep_days
        self._cleaned = float("-inf")

    def check(self) -> None:
        """Makes the folder; raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def decode(self, message: Message, cluster: str) -> Archived:
        return archived(message, cluster)

    def write(self, message_range: Range[Archived]) -> None:
        """Raises OSError."""
        hours: dict[int, list[Archived]] = defaultdict(list)
        for message in message_range.messages:
            hours[message.end_unix_nano // _HOUR_NS].append(message)
        offsets = message_range.offsets
        name = f"{_safe(message_range.cluster)}-{message_range.partition}-{offsets.first}-{offsets.last}.parquet"
        for hour, messages in hours.items():
            _write(_hour_folder(self._folder / message_range.topic, hour) / name, messages)
        metrics.ROWS.labels(self.name, message_range.topic).inc(len(message_range.messages))

    def failed(self) -> None:
        """Nothing is open."""

    def idle(self) -> None:
        """Deletes days that are too old."""
        if not self._keep_days or time.monotonic() - self._cleaned < _CLEAN_S:
            return
        self._cleaned = time.monotonic()
        oldest = datetime.fromtimestamp(time.time() - self._keep_days * 86_400, timezone.utc)
        for day in self._folder.glob("*/date=*"):
            if day.name < f"date={oldest:%Y-%m-%d}":
                shutil.rmtree(day, ignore_errors=True)

    def close(self) -> None:
        """Nothing is open."""


def archived(message: Message, cluster: str) -> Archived:
    """A consumed message with what it says about itself."""
    timestamp_ms = max(message.timestamp()[1], 0)
    try:
        batch_id, start, end = about(message.topic() or "", message.value())
    except BadMessage:
        batch_id, start, end = BatchId(), timestamp_ms * 10**6, timestamp_ms * 10**6
    key = message.key()
    return Archived(
        cluster=cluster, partition=message.partition() or 0, offset=message.offset() or 0, timestamp_ms=timestamp_ms,
        key=key.encode() if isinstance(key, str) else key or b"", value=message.value() or b"",
        collector=batch_id.collector, started_unix_nano=batch_id.started_unix_nano, sequence=batch_id.sequence,
        part=batch_id.part, parts=batch_id.parts, start_unix_nano=start, end_unix_nano=end,
    )  # fmt: skip


def read(folder: Path, topic: str, from_unix_nano: int, to_unix_nano: int) -> Iterator[Archived]:
    """Messages that have something in [from, to), each once: hour by hour, within one by cluster, partition, offset."""
    # An offset may lie in several files: those of a group that was set back.
    seen: set[tuple[str, int, int]] = set()
    last = min(to_unix_nano + LATE_NS, MAX_UNIX_NANO)
    for hour in range(from_unix_nano // _HOUR_NS, last // _HOUR_NS + 1):
        files = sorted(_hour_folder(folder / topic, hour).glob("*.parquet"))
        rows: list[Archived] = []
        for path in files:
            table = pq.read_table(
                path,
                partitioning=None,
                filters=[("end_unix_nano", ">=", from_unix_nano), ("start_unix_nano", "<", to_unix_nano)],
            )
            rows.extend(Archived(**row) for row in table.to_pylist())
        for row in sorted(rows, key=lambda r: (r.cluster, r.partition, r.offset)):
            place = (row.cluster, row.partition, row.offset)
            if place not in seen:
                seen.add(place)
                yield row


def covers(folder: Path, topic: str) -> tuple[int, int] | None:
    """The first and last moment of the hours that there are files of, Unix nanoseconds; None without files."""
    hours = sorted(
        int(datetime.strptime(f"{day}T{hour}+0000", "%Y-%m-%dT%H%z").timestamp()) * 10**9
        for path in (folder / topic).glob("date=*/hour=*")
        for day, hour in [(path.parent.name.removeprefix("date="), path.name.removeprefix("hour="))]
    )
    return (hours[0], hours[-1] + _HOUR_NS) if hours else None


def about(topic: str, value: bytes | None) -> tuple[BatchId, int, int]:
    """Batch ID, first and last moment of a raw or activity message; raises BadMessage where they make no sense."""
    if topic == RAW:
        raw = parse(RawBatch, value)
        batch_id, start, end = raw.id, raw.start_unix_nano, raw.end_unix_nano
    else:
        activity = parse(ActivityBatch, value)
        batch_id, end = activity.id, activity.complete_unix_nano
        begins = packed.column(activity, "interval_start_offset_ns") + np.int64(
            min(activity.start_unix_nano, MAX_UNIX_NANO)
        )
        lengths = packed.column(activity, "interval_duration_ns").astype(np.int64)
        if len(begins) != len(lengths):
            raise BadMessage(f"{len(begins)} intervals, but {len(lengths)} durations")
        spans = activity.spans
        start = min([end, int(begins.min(initial=min(end, MAX_UNIX_NANO))), *(span.start_unix_nano for span in spans)])
        end = max([end, int((begins + lengths).max(initial=0)), *(span.end_unix_nano for span in spans)])
    if not 0 <= start <= end < MAX_UNIX_NANO:
        raise BadMessage(f"a window from {start} to {end}")
    return batch_id, start, end


def _write(path: Path, messages: list[Archived]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{name: getattr(m, name) for name in _SCHEMA.names} for m in messages], schema=_SCHEMA)
    with atomic_file.replacing(path, durable=True) as file:
        pq.write_table(table, file, compression="zstd")


def _hour_folder(folder: Path, hour: int) -> Path:
    moment = datetime.fromtimestamp(hour * 3600, timezone.utc)
    return folder / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"


def _safe(text: str) -> str:
    """A cluster's ID as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", text) or "_"


_TYPES = {str: pa.string(), bytes: pa.binary(), int: pa.int64()}
_UNSIGNED = {"started_unix_nano", "sequence"}
_SCHEMA = pa.schema(
    [(f.name, pa.uint64() if f.name in _UNSIGNED else _TYPES[f.type]) for f in fields(Archived)]  # type: ignore[index]
)
