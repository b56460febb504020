"""The raw archive: unchanged messages of icestream.raw and icestream.activity in Parquet files, for replays.

    ARCHIVE/TOPIC/date=2026-01-31/hour=13/CLUSTER-PARTITION-FIRST-LAST.parquet

The hour is that of a message's end, UTC. A file is named by its range of offsets, so a range that is written again
replaces its own files. A file is written under another name, synced and renamed, so a reader never sees half a file.
"""

import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Message

from icestream import atomic_file
from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_LIMITS, ANY_TIME, TimeLimits, Times
from icestream.messages.raw import decode_raw
from icestream.times import MAX_UNIX_NANO
from icestream.topics import ACTIVITY, ARCHIVE_GROUP, RAW
from icestream.v1.common_pb2 import BatchId
from sinks import metrics
from sinks.ranges import MessageRange

LATE_NS = 2 * 3600 * 10**9
"""An interval of activity that starts in a time range is found for it if it ends at most this long after it."""
_HOUR_NS = 3600 * 10**9
_DAY_NS = 24 * _HOUR_NS
_CLEAN_S = 3600.0


@dataclass(frozen=True)
class Archived:
    """A message. If it is a bad one, its batch ID is empty and its times are Kafka's timestamp."""

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
    start_unix_nano: int  # of a raw batch: the window; of activity: from the first start to the last end
    end_unix_nano: int


class ArchiveSink:
    """Writes ranges of messages to files. Used by one thread."""

    name = "archive"
    group = ARCHIVE_GROUP
    topics: tuple[str, ...] = (RAW, ACTIVITY)
    keeps_ranges = True

    def __init__(self, folder: Path, keep_days: int = 0, limits: TimeLimits = ANY_LIMITS) -> None:
        """`keep_days`: days that are kept; 0: all."""
        self._limits = limits
        self._folder = folder
        self._keep_days = keep_days
        self._cleaned = float("-inf")

    def check(self) -> None:
        """Makes the folder; raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def decode(self, message: Message, cluster: str) -> Archived:
        return archived(message, cluster, self._limits)

    def write(self, message_range: MessageRange[Archived]) -> None:
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
        """Does nothing: no file is open."""

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
        """Does nothing: no file is open."""


def archived(message: Message, cluster: str, limits: TimeLimits = ANY_LIMITS) -> Archived:
    """Returns a consumed message with its batch ID and times."""
    timestamp_ms = max(message.timestamp()[1], 0)
    try:
        batch_id, start, end = time_range(message.topic() or "", message.value(), limits.collected(timestamp_ms))
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
    """Reads the messages with a time in [from, to), each once: by hour, then by cluster, partition and offset."""
    # An offset may lie in several files if the group was reset.
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
            message_id = (row.cluster, row.partition, row.offset)
            if message_id not in seen:
                seen.add(message_id)
                yield row


def covers(folder: Path, topic: str) -> tuple[int, int] | None:
    """Returns from when to when there are hours with files, Unix nanoseconds; None without files."""
    hours = sorted(
        int(datetime.strptime(f"{day}T{hour}+0000", "%Y-%m-%dT%H%z").timestamp()) * 10**9
        for path in (folder / topic).glob("date=*/hour=*")
        for day, hour in [(path.parent.name.removeprefix("date="), path.name.removeprefix("hour="))]
    )
    return (hours[0], hours[-1] + _HOUR_NS) if hours else None


def time_range(topic: str, data: bytes | None, times: Times = ANY_TIME) -> tuple[BatchId, int, int]:
    """Returns the batch ID, the first and the last moment of a raw or activity message. Raises BadMessage."""
    if topic == RAW:
        raw = decode_raw(data, times)
        return raw.id, raw.start_unix_nano, raw.end_unix_nano
    activity = decode_activity(data, times)
    return activity.id, *activity.time_range()


def _write(path: Path, messages: list[Archived]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{name: getattr(m, name) for name in _SCHEMA.names} for m in messages], schema=_SCHEMA)
    with atomic_file.replacing(path, durable=True) as file:
        pq.write_table(table, file, compression="zstd")


def _hour_folder(folder: Path, hour: int) -> Path:
    moment = datetime.fromtimestamp(hour * 3600, timezone.utc)
    return folder / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"


def _safe(text: str) -> str:
    """Returns a cluster's ID as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", text) or "_"


_TYPES = {str: pa.string(), bytes: pa.binary(), int: pa.int64()}
_UNSIGNED = {"started_unix_nano", "sequence"}
_SCHEMA = pa.schema(
    [(f.name, pa.uint64() if f.name in _UNSIGNED else _TYPES[f.type]) for f in fields(Archived)]  # type: ignore[index]
)
