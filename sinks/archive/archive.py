"""The raw archive: unchanged messages of icestream.raw and icestream.activity in Parquet files, for replays.

    ARCHIVE/TOPIC/date=2026-01-31/hour=13/CLUSTER-PARTITION-FIRST-LAST-START-END-CHECKSUM.parquet

The hour is that of a message's end, UTC. A file has the messages of a range of offsets (FIRST to LAST) that end in its
hour; START and END are its earliest and its latest moment, Unix milliseconds. So a reader needs only names to choose
files. A range that is written again replaces its own files, but not those of other messages with the same offsets: a
topic that was made anew has them (CHECKSUM is of the messages). A reader never sees half a file.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Message
from pyarrow import fs

from icestream.kafka.log_mark import checksum
from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_LIMITS, ANY_TIME, MAX_SPREAD_NS, TimeLimits, Times
from icestream.messages.raw import read_header
from icestream.times import HOUR_NS, MAX_UNIX_NANO
from icestream.topics import ACTIVITY, ARCHIVE_GROUP, RAW
from icestream.v1.common_pb2 import BatchId
from sinks import metrics
from sinks.archive.folders import names, open_folder, write_file
from sinks.runner.kafka_clock import Now
from sinks.runner.ranges import MessageRange

_CLEAN_S = 3600.0
_ROWS_AT_ONCE = 64
_FILES_AT_ONCE = 8
"""Files of which columns are read at once: a store that is far away takes its time for each."""
_DAMAGE = (OSError, ValueError, LookupError, MemoryError, pa.ArrowException)
"""What pyarrow raises of a file with wrong bytes: a column may have another name, or a size beyond any memory."""
_PAGE_BYTES = 2_000_000
"""Messages of so many bytes are compressed together: zstd does not find repetitions in another page."""


class Archived(NamedTuple):
    """A message. If its header, or its activity, is bad, its batch ID is empty and its times are Kafka's timestamp."""

    cluster: str  # the ID of the Kafka cluster
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


Wanted = Callable[[str, str, int, int], bool]
"""Whether a message is wanted: by the name of its file, its cluster, partition and offset."""


def _all(file: str, cluster: str, partition: int, offset: int) -> bool:
    return True


class ArchivedMessage(NamedTuple):
    """The batch ID of an archived message, and where it is in Kafka."""

    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    cluster: str  # the ID of the Kafka cluster
    partition: int
    offset: int


class ArchivedRun(NamedTuple):
    """One start of a collector."""

    collector: str
    started_unix_nano: int


class ArchiveSink:
    """Writes ranges of messages to files. Used by one thread."""

    name = "archive"
    group = ARCHIVE_GROUP
    topics: tuple[str, ...] = (RAW, ACTIVITY)
    keeps_ranges = True
    writes_together = False

    def __init__(
        self, uri: str, keep_days: int = 0, limits: TimeLimits = ANY_LIMITS, now: Now = time.time
    ) -> None:  # fmt: skip
        """`uri`: a folder or a URI, see `open_folder`; `keep_days`: days that are kept; 0: all."""
        self._limits = limits
        self._uri = uri
        self._keep_days = keep_days
        self._now = now
        self._cleaned = float("-inf")

    def check(self) -> None:
        """Raises OSError or ValueError where the folder cannot be read."""
        names(open_folder(self._uri))

    def decode(self, message: Message, cluster: str) -> Archived:
        return archived(message, cluster, self._limits)

    def write(self, *ranges: MessageRange[Archived]) -> None:
        """Raises OSError or ValueError; may then be called again with the same ranges."""
        for message_range in ranges:
            self._write(message_range)

    def try_out(self, messages: Sequence[Archived], empty: bool) -> None:
        """See Sink. Raises pyarrow's errors."""
        _parquet([] if empty else list(messages))

    def failed(self) -> None:
        """Does nothing: no file is open."""

    def idle(self) -> None:
        """Deletes days that are too old."""
        if not self._keep_days or time.monotonic() - self._cleaned < _CLEAN_S or (now := self._now()) is None:
            return
        self._cleaned = time.monotonic()
        oldest = f"date={datetime.fromtimestamp(now - self._keep_days * 86_400, timezone.utc):%Y-%m-%d}"
        folder = open_folder(self._uri)
        for topic in self.topics:
            for day in names(folder, topic):
                if _DAY.fullmatch(day) and day < oldest:
                    folder.delete_dir(f"{topic}/{day}")

    def close(self) -> None:
        """Does nothing: no file is open."""

    def _write(self, message_range: MessageRange[Archived]) -> None:
        hours: dict[int, list[Archived]] = defaultdict(list)
        for message in message_range.messages:
            hours[message.end_unix_nano // HOUR_NS].append(message)
        for hour, messages in hours.items():
            path = f"{message_range.topic}/{_hour_folder(hour)}/{_file_name(message_range, messages)}"
            write_file(self._uri, path, _parquet(messages))
        metrics.ROWS.labels(self.name, message_range.topic).inc(len(message_range.messages))


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


class DamagedFile(ValueError):
    """A file of the archive that cannot be read as a whole; the message names it."""

    def __init__(self, uri: str, path: str, error: Exception) -> None:
        super().__init__(f"{uri.rstrip('/')}/{path} is damaged: {error}")
        self._topic, self._file = path.split("/")[0], _parse(path.split("/")[-1])

    def has(self, topic: str, cluster: str, partition: int, offset: int) -> bool:
        """Returns whether a message lies in the file."""
        if self._file is None or (topic, _safe(cluster), partition) != (self._topic, *self._file[:2]):
            return False
        return self._file.first <= offset <= self._file.last


OnDamage = Callable[[DamagedFile], object]
"""Is told of a damaged file, and may raise the error; else the file counts for what could be read of it."""


def raise_damage(damaged: DamagedFile) -> None:
    raise damaged


def read(
    uri: str, topic: str, from_unix_nano: int, to_unix_nano: int, only_partition: int | None = None,
    on_damage: OnDamage = raise_damage, wanted: Wanted = _all,
) -> Iterator[Archived]:  # fmt: skip
    """Yields the messages with a time in [from, to), each once: by hour, then by cluster and partition, and by offset
    as long as the topic was not made anew.

    `only_partition`: read only the partition of this number. It holds one compressed file and some of its messages at a
    time. `on_damage` is told of damaged files. Raises OSError or ValueError.
    """
    folder = open_folder(uri)
    of_partition, seen = (0, "", -1), set[tuple[int, ...]]()
    for hour, path, file in _files(folder, topic, from_unix_nano, to_unix_nano):
        if only_partition not in (None, file.partition):
            continue
        if (hour, file.cluster, file.partition) != of_partition:
            of_partition, seen = (hour, file.cluster, file.partition), set()
        try:
            for message in _read_file(folder, uri, path):
                # Files have the same messages if the group was reset; others with these offsets if the topic was.
                identity = (message.offset, message.timestamp_ms, checksum(message.value))
                if (
                    message.end_unix_nano >= from_unix_nano
                    and message.start_unix_nano < to_unix_nano
                    and message.end_unix_nano // HOUR_NS == hour
                    and identity not in seen
                    and wanted(file.name, message.cluster, message.partition, message.offset)
                ):
                    seen.add(identity)
                    yield message
        except DamagedFile as damaged:
            on_damage(damaged)


def identities(
    uri: str, topic: str, from_unix_nano: int, to_unix_nano: int, on_damage: OnDamage = raise_damage,
    wanted: Wanted = _all,
) -> Iterator[ArchivedMessage]:  # fmt: skip
    """Yields what identifies the messages with a time in [from, to).

    It reads only these columns. A message may come twice. `on_damage` is told of files that do not have them. Raises
    OSError or ValueError.
    """
    columns = list(ArchivedMessage._fields)
    folder = open_folder(uri)
    for _, path, name in _files(folder, topic, from_unix_nano, to_unix_nano):
        try:
            with folder.open_input_file(path) as file:
                table = pq.ParquetFile(file).read([*columns, "start_unix_nano", "end_unix_nano"])
                within = pc.field("end_unix_nano") >= from_unix_nano, pc.field("start_unix_nano") < to_unix_nano
                rows = table.filter(within[0] & within[1]).select(columns).to_pydict()
        except _DAMAGE as error:
            with folder.open_input_file(path) as file:
                file.readall()  # raises what is no damage
            on_damage(DamagedFile(uri, path, error))
            continue
        for row in map(ArchivedMessage._make, zip(*rows.values(), strict=True)):
            if wanted(name.name, row.cluster, row.partition, row.offset):
                yield row


def moved_runs(uri: str, topics: Collection[str], from_unix_nano: int, to_unix_nano: int) -> set[ArchivedRun]:
    """Returns the runs that are in several partitions, of any of these topics, in the files that may have messages with
    a time in [from, to). A file that is damaged may have any run: then these are all runs.

    It reads only the columns that it needs. Raises OSError or ValueError.
    """
    folder, columns = open_folder(uri), list(ArchivedRun._fields)
    paths = [path for topic in topics for _, path, _ in _files(folder, topic, from_unix_nano, to_unix_nano)]

    def read_runs(path: str) -> pa.Table | None:
        try:
            with folder.open_input_file(path) as file:
                return pq.ParquetFile(file, pre_buffer=True).read([*columns, "partition"], use_threads=False)
        except _DAMAGE:
            return None

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        tables = list(pool.map(read_runs, paths))
    readable = [table for table in tables if table is not None]
    if not readable:
        return set()
    runs = pa.concat_tables(readable).filter(pc.field("collector") != "")  # bad messages have none
    runs = runs.group_by(columns).aggregate([("partition", "min"), ("partition", "max")])
    if len(readable) == len(tables):
        runs = runs.filter(pc.field("partition_min") < pc.field("partition_max"))
    return set(map(ArchivedRun._make, zip(*runs.select(columns).to_pydict().values(), strict=True)))


def files(uri: str, topic: str, from_unix_nano: int, to_unix_nano: int) -> Iterator["File"]:
    """Yields the files that may have messages with a time in [from, to). Raises OSError or ValueError."""
    for _, _, file in _files(open_folder(uri), topic, from_unix_nano, to_unix_nano):
        yield file


def partitions(uri: str, topic: str, from_unix_nano: int, to_unix_nano: int) -> Counter[int]:
    """Returns the partitions that may have messages with a time in [from, to), and the number of their files."""
    return Counter(file.partition for file in files(uri, topic, from_unix_nano, to_unix_nano))


def covers(uri: str, topic: str) -> tuple[int, int] | None:
    """Returns the start of the first hour with files and the end of the last one, Unix nanoseconds, or None."""
    folder = open_folder(uri)
    days = [f"{topic}/{day}" for day in names(folder, topic) if _DAY.fullmatch(day)]
    first = next(_hours_of(folder, days), None)
    last = next(_hours_of(folder, days[::-1], reverse=True), None)
    return (first[0] * HOUR_NS, (last[0] + 1) * HOUR_NS) if first and last else None


def time_range(topic: str, data: bytes | None, times: Times = ANY_TIME) -> tuple[BatchId, int, int]:
    """Returns the batch ID, the first and the last moment of a raw or activity message. Raises BadMessage: of a raw
    message only its header is read."""
    if topic == RAW:
        raw = read_header(data, times)
        return raw.id, raw.start_unix_nano, raw.end_unix_nano
    activity = decode_activity(data, times)
    return activity.id, *activity.time_range()


class File(NamedTuple):
    """The name of a file; files of a partition are in the order of their offsets."""

    cluster: str
    partition: int
    first: int
    last: int
    start_unix_milli: int
    end_unix_milli: int
    name: str


_DAY = re.compile(r"date=\d{4}-\d\d-\d\d")
_HOUR = re.compile(r"hour=\d\d")
_FILE = re.compile(r"(.+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]{8}\.parquet")


def _parse(name: str) -> File | None:
    """Returns None for other files, such as unfinished ones."""
    match = None if name.startswith(".") else _FILE.fullmatch(name)
    if match is None:
        return None
    partition, first, last, start, end = (int(number) for number in match.groups()[1:])
    return File(match[1], partition, first, last, start, end, name)


def _files(
    folder: fs.FileSystem, topic: str, from_unix_nano: int, to_unix_nano: int
) -> Iterator[tuple[int, str, File]]:
    """Yields hour, path and name of the files that may have messages with a time in [from, to).

    A message lies in the hour of its end, which may be long after its start.
    """
    last = min(to_unix_nano + MAX_SPREAD_NS, MAX_UNIX_NANO)
    for hour, path in _hours(folder, topic, from_unix_nano // HOUR_NS, last // HOUR_NS):
        for file in sorted(filter(None, map(_parse, names(folder, path)))):
            if file.end_unix_milli >= from_unix_nano // 10**6 and file.start_unix_milli <= to_unix_nano // 10**6:
                yield hour, f"{path}/{file.name}", file


def _file_name(message_range: MessageRange[Archived], messages: list[Archived]) -> str:
    offsets = message_range.offsets
    start = min(message.start_unix_nano for message in messages) // 10**6
    end = max(message.end_unix_nano for message in messages) // 10**6
    prefix = f"{_safe(message_range.cluster)}-{message_range.partition}"
    of_all = reduce(lambda before, message: checksum(message.value, before), messages, 0)
    return f"{prefix}-{offsets.first}-{offsets.last}-{start}-{end}-{of_all:08x}.parquet"


def _parquet(messages: list[Archived]) -> bytes:
    columns = zip(*messages, strict=True) if messages else [()] * len(_SCHEMA)
    arrays = [
        pa.chunked_array(map(_in_place, column), field.type) if field.name == _LONG else pa.array(column, field.type)
        for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    out = pa.BufferOutputStream()
    # A dictionary of the messages and their least and greatest would be copies of them.
    others = [name for name in _SCHEMA.names if name != _LONG]
    pq.write_table(
        pa.table(arrays, schema=_SCHEMA), out, compression="zstd", use_dictionary=others, write_statistics=others,
        data_page_size=_PAGE_BYTES, write_page_checksum=True,
    )  # fmt: skip
    return bytes(out.getvalue())


def _in_place(value: bytes) -> pa.BinaryArray:
    """Returns an array of a message that is not copied: to make a large array for all of them takes longer than to fill
    it."""
    offsets = np.array([0, len(value)], np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])


def _read_file(folder: fs.FileSystem, uri: str, path: str) -> Iterator[Archived]:
    """Yields the messages of a file by offset. Raises OSError, and DamagedFile, maybe after some of its messages."""
    with folder.open_input_file(path) as file:
        content = pa.py_buffer(file.readall())  # what fails here is not for what the file holds
    try:
        parquet = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=_SCHEMA.names):
            columns = (batch.column(name).to_pylist() for name in _SCHEMA.names)
            yield from map(Archived._make, zip(*columns, strict=True))
    except _DAMAGE as error:
        raise DamagedFile(uri, path, error) from error


def _hours(folder: fs.FileSystem, topic: str, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yields the hours from `first` to `last` that the archive has, and their folders."""
    first_day, last_day = (f"date={_moment(hour):%Y-%m-%d}" for hour in (first, last))
    days = [day for day in names(folder, topic) if _DAY.fullmatch(day) and first_day <= day <= last_day]
    for hour, path in _hours_of(folder, [f"{topic}/{day}" for day in days]):
        if first <= hour <= last:
            yield hour, path


def _hours_of(folder: fs.FileSystem, days: list[str], reverse: bool = False) -> Iterator[tuple[int, str]]:
    for day in days:
        for name in sorted(filter(_HOUR.fullmatch, names(folder, day)), reverse=reverse):
            text = f"{day[-10:]}T{name[-2:]}+0000"
            yield int(datetime.strptime(text, "%Y-%m-%dT%H%z").timestamp()) // 3600, f"{day}/{name}"


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * 3600, timezone.utc)


def _hour_folder(hour: int) -> str:
    return f"date={_moment(hour):%Y-%m-%d}/hour={_moment(hour):%H}"


def _safe(text: str) -> str:
    """Returns a cluster's ID as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", text) or "_"


_TYPES = {str: pa.string(), bytes: pa.binary(), int: pa.int64()}
_UNSIGNED = {"started_unix_nano", "sequence"}
_LONG = "value"
_SCHEMA = pa.schema(
    [(name, pa.uint64() if name in _UNSIGNED else _TYPES[kind]) for name, kind in Archived.__annotations__.items()]
)
