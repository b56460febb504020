"""Recomputes a slice of a time range: reads its messages, and runs them through the stream processors' operators.

It reads all activity of a unit first, so that every sample finds its trace context: nothing is late, and there are no
corrections. The operators run on blocks of many batches. It holds the activity of one unit, one block, and the rows of
one insert in memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from icestream.kafka.dead_letters import reason
from icestream.labels.request_labels import RequestLabels
from icestream.messages.activity import ActivityColumns, decode_activities
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import Times
from icestream.messages.raw import RawColumns, decode_raws
from icestream.times import DAY_NS
from icestream.topics import ACTIVITY, RAW
from jobs.recompute.outputs import OperatorState, outputs
from jobs.recompute.sources import ArchiveSource
from jobs.recompute.unit_activity import UnitActivity
from jobs.time_range import JobTimeRange
from sinks.archive.archive import Archived, ArchivedRun, DamagedFile
from sinks.clickhouse import stored_batches
from sinks.clickhouse.stored_batches import Batch
from sinks.tables.activity import activity_batch, interval_rows, span_rows
from sinks.tables.arrow import concat
from streams.partition.process import Operators

ColumnsT = TypeVar("ColumnsT", RawColumns, ActivityColumns)
Decode = Callable[[Sequence[bytes], Sequence[Times]], list[ColumnsT]]
"""Raises BadMessage if any of the messages is bad."""
_BLOCK_MESSAGES, _BLOCK_BYTES = 100, 8_000_000
"""The size of a block, whose columns are computed at once: it ends with the message that reaches either."""
_INSERT_ROWS = 200_000


@dataclass(frozen=True)
class Unit:
    """What one process recomputes at a time: of a slice, what one partition has, without runs of collectors that are in
    several partitions; or some of these runs.

    After partitions were added, a run goes on in another one, and may send batches again. A unit has all of a run, so
    that it finds each batch once, and all activity for its samples.
    """

    time_range: JobTimeRange
    partition: int | None
    """None: all of them."""
    moved: frozenset[ArchivedRun] = frozenset()
    """The runs that a unit of all partitions has, and one of a single partition leaves out."""
    last: bool = True
    """Whether the job has no later slice."""

    def has(self, message: Archived) -> bool:
        """Returns whether a message that is in the unit's partitions belongs to it."""
        return ((message.collector, message.started_unix_nano) in self.moved) == (self.partition is None)

    def counts(self, message: Archived) -> bool:
        """Returns whether a message of the unit counts in this slice: only in the last one in which it is read."""
        return self.last or message.end_unix_nano < self.time_range.end_unix_nano


@dataclass
class RecomputeCounts:
    """What was recomputed."""

    samples: int = 0
    batches: int = 0
    """Each batch counts in the slice in which it starts."""
    bad: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    """Messages that are refused, by topic and reason, as the live pipeline counts dead letters. Each one counts in the
    last slice in which it is read."""
    damaged: set[str] = field(default_factory=set)
    """Files of the archive, and what is wrong with them."""
    thinned: set[str] = field(default_factory=set)
    """Days whose requests are final, and were left alone."""

    def add(self, other: "RecomputeCounts") -> None:
        self.samples += other.samples
        self.batches += other.batches
        self.bad.update(other.bad)
        self.damaged |= other.damaged

    def lines(self) -> list[str]:
        """Says for people which messages were refused, and of which days requests were left alone."""
        thinned = [f"requests of {day} are thinned, and were left alone" for day in sorted(self.thinned)]
        if not self.bad:
            return thinned
        reasons = ", ".join(f"{topic} {reason}: {count}" for (topic, reason), count in sorted(self.bad.items()))
        return [f"{self.bad.total()} messages cannot be decoded and were left out ({reasons})", *thinned]

    def lacking(self) -> list[str]:
        """Says for people which files could not be read."""
        return [f"{damaged}: what it has was left alone" for damaged in sorted(self.damaged)]


class TableRows(NamedTuple):
    """Rows for a table."""

    table: str
    rows: pa.Table


class Recomputer:
    """Recomputes units, one after the other; what it remembers of one makes the next one faster."""

    def __init__(
        self, source: ArchiveSource, operators: Operators, block: str, request_labels: Sequence[str] = ()
    ) -> None:
        """`block`: of rows of `batches`; `request_labels`: names of the labels of requests."""
        self._source = source
        self._known = OperatorState(operators, sets=RequestLabels(request_labels))
        self._block = block

    def portions(self, unit: Unit, counts: RecomputeCounts) -> Iterator[TableRows]:
        """Yields the rows of a unit in portions, and adds to `counts`. Raises OSError and ValueError."""
        batches = _Batches(self._block)
        waiting: dict[str, list[pa.Table]] = {}
        rows_waiting: Counter[str] = Counter()
        for name, rows in self._rows(unit, counts, batches):
            if rows.num_rows:
                waiting.setdefault(name, []).append(rows)
                rows_waiting[name] += rows.num_rows
                if rows_waiting[name] >= _INSERT_ROWS:
                    del rows_waiting[name]
                    yield TableRows(name, concat(waiting.pop(name)))
        for name, tables in waiting.items():
            yield TableRows(name, concat(tables))
        yield TableRows("batches", batches.table())

    def _rows(self, unit: Unit, counts: RecomputeCounts, batches: "_Batches") -> Iterator[TableRows]:
        activity = UnitActivity()
        for block in self._blocks(ACTIVITY, unit, decode_activities, counts):
            for _, columns in block:
                activity.add(columns)
            yield from _activity_rows(block, unit, counts, batches)
        for raw_block in self._blocks(RAW, unit, self._decode_raw, counts):
            yield from self._raw_rows(raw_block, activity, unit, counts, batches)

    def _decode_raw(self, messages: Sequence[bytes], times: Sequence[Times]) -> list[RawColumns]:
        return [self._known.operators.changed(raw) for raw in decode_raws(messages, times)]

    def _raw_rows(
        self, block: Sequence[tuple[Archived, RawColumns]], activity: UnitActivity, unit: Unit, counts: RecomputeCounts,
        batches: "_Batches",
    ) -> Iterator[TableRows]:  # fmt: skip
        results = outputs(self._known, activity, [(_message_id(message, RAW), raw) for message, raw in block])
        for number, batch in results.batches:
            counts.batches += block[number][0].start_unix_nano >= unit.time_range.start_unix_nano
            batches.add(batch, block[number][0])
        rows = _within(results.samples, "time", unit.time_range)
        counts.samples += rows.num_rows
        yield TableRows("samples", rows)
        yield TableRows("series", results.series)
        for stacks in results.stacks:
            yield TableRows("nodes", stacks.nodes)
            yield TableRows("locations", stacks.locations)

    def _blocks(
        self, topic: str, unit: Unit, decode: Decode[ColumnsT], counts: RecomputeCounts
    ) -> Iterator[list[tuple[Archived, ColumnsT]]]:
        """Yields the batches of a unit in blocks of one day, each batch once."""
        seen: set[tuple[str, int, int, int]] = set()

        def on_damage(damaged: DamagedFile) -> None:
            counts.damaged.add(str(damaged))

        for messages in _cut(filter(unit.has, self._source.read(topic, unit.time_range, unit.partition, on_damage))):
            block = []
            for message, columns in self._decoded(topic, messages, unit, decode, counts):
                of = columns.id
                key = of.collector, of.started_unix_nano, of.sequence, of.part
                if key not in seen:
                    seen.add(key)
                    block.append((message, columns))
            if block:
                yield block

    def _decoded(
        self, topic: str, messages: Sequence[Archived], unit: Unit, decode: Decode[ColumnsT], counts: RecomputeCounts
    ) -> Iterator[tuple[Archived, ColumnsT]]:
        """Yields the messages that can be decoded, and counts the others."""
        values = [message.value for message in messages]
        times = [self._source.limits.collected(message.timestamp_ms) for message in messages]
        try:
            yield from zip(messages, decode(values, times), strict=True)
        except BadMessage as error:
            if len(messages) > 1:  # one by one, to find the bad ones
                for message in messages:
                    yield from self._decoded(topic, [message], unit, decode, counts)
            elif unit.counts(messages[0]):
                counts.bad[topic, reason(error)] += 1


def _cut(messages: Iterator[Archived]) -> Iterator[list[Archived]]:
    """Yields messages in blocks, each of one day."""
    block: list[Archived] = []
    size, day = 0, -1
    for message in messages:
        own_day = message.start_unix_nano // DAY_NS
        if block and (own_day != day or len(block) >= _BLOCK_MESSAGES or size >= _BLOCK_BYTES):
            yield block
            block, size = [], 0
        block.append(message)
        size, day = size + len(message.value), own_day
    if block:
        yield block


def _activity_rows(
    block: Sequence[tuple[Archived, ActivityColumns]], unit: Unit, counts: RecomputeCounts, batches: "_Batches"
) -> Iterator[TableRows]:
    columns = [one for _, one in block]
    rows = [activity_batch(one, _message_id(message, ACTIVITY)) for message, one in block]
    for batch, (message, _) in zip(rows, block, strict=True):
        counts.batches += message.start_unix_nano >= unit.time_range.start_unix_nano
        batches.add(batch, message)
    yield TableRows("activity", _within(interval_rows(columns, rows), "start_time", unit.time_range))
    yield TableRows("spans", _within(span_rows(columns), "start_time", unit.time_range))


class _Batches:
    """The batches of a unit, and from when to when their messages reach."""

    def __init__(self, block: str) -> None:
        self._block = block
        self._batches: list[Batch] = []
        self._reach: list[tuple[int, int]] = []

    def add(self, batch: Batch, message: Archived) -> None:
        self._batches.append(batch)
        self._reach.append((message.start_unix_nano, message.end_unix_nano))

    def table(self) -> pa.Table:
        """Returns rows for the staged `batches`."""
        reach = np.array(self._reach, np.int64).reshape(-1, 2)
        rows = stored_batches.table(self._batches, self._block)
        return rows.append_column("from_unix_nano", pa.array(reach[:, 0])).append_column(
            "to_unix_nano", pa.array(reach[:, 1])
        )


def _message_id(message: Archived, topic: str) -> MessageId:
    return MessageId(message.cluster, topic, message.partition, message.offset)


def _within(rows: pa.Table, column: str, time_range: JobTimeRange) -> pa.Table:
    """Returns the rows whose time is in the range."""
    kind = rows.schema.field(column).type
    unit_ns = {"ms": 10**6, "ns": 1}[kind.unit]
    time = rows[column].cast(pa.int64()).to_numpy()
    start, end = (-(-unix_nano // unit_ns) for unix_nano in (time_range.start_unix_nano, time_range.end_unix_nano))
    inside = (time >= start) & (time < end)
    return rows if inside.all() else rows.filter(pa.array(inside))
