"""The ClickHouse sink: icestream.samples, icestream.stacks and icestream.activity to tables, each row once; and where
the messages on icestream.dead-letters came from.

A range of messages is inserted as one block, whose deduplication token is the name of the range. After it, the range's
batches are inserted into `batches`. Three rules store each row once:
- A batch that is in `batches` is not inserted again, whoever sent it a second time.
- A range that was in flight when a sink died is written again under the same name. ClickHouse drops blocks with a known
  token, table by table. So the rows that the crash left out are added (also to `trace_samples`, behind its view), and
  the others are not doubled.
- A range in flight whose batches are in `batches` was written completely.
Nodes, locations, series and spans that come twice become one row (ReplacingMergeTree).

The tables remember the tokens of their latest 10,000 blocks. No block has rows of two partitions: the next owner of one
of them could not make it again. So ranges are inserted one by one.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from icestream.clickhouse.client import Clients
from icestream.labels.request_labels import NO_LABELS, RequestLabels
from icestream.messages.checks import Labels
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.times import DAY_NS
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, DEAD_LETTERS, SAMPLES, STACKS
from sinks import metrics
from sinks.clickhouse import cluster, stored_batches
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.clickhouse.insert_tokens import InsertTokens
from sinks.clickhouse.migrate import check
from sinks.clickhouse.retention import drop_unused_locations
from sinks.rollups.changes import note_added, note_requests
from sinks.runner.ranges import MessageRange, message_id
from sinks.runner.seen import SeriesDays
from sinks.runner.try_out import NotToBlame, drop_in_clickhouse, rows_of
from sinks.tables import dead_letters
from sinks.tables.activity import ActivityTables
from sinks.tables.arrow import blocks_of_days, concat
from sinks.tables.dead_letters import DeadLetter
from sinks.tables.decode import Tables, decode
from sinks.tables.samples import SampleTables, series_table
from sinks.tables.stacks import StackTables

SETTINGS = {
    "async_insert": 0,  # a token names a block of this sink, not a mix of several clients' rows
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # Merges join equal rows and sums anyway. To do so in each block as well takes two thirds of the CPU of storing
    # spans, and a fifth of that of activity, with their views.
    "optimize_on_insert": 0,
    "max_partitions_per_insert_block": 0,  # see MAX_DAYS
}
StoredT = TypeVar("StoredT", SampleTables, ActivityTables)
MAX_DAYS = 40
"""The most days, and so partitions, of one insert: each costs time and memory. More days take several inserts."""
_CLEAN_S = 86_400.0


class ClickHouseSink:
    """Writes ranges of messages; see the module. Used by one thread."""

    name = "clickhouse"
    group = CLICKHOUSE_GROUP
    topics: tuple[str, ...] = (STACKS, SAMPLES, ACTIVITY, DEAD_LETTERS)
    keeps_ranges = True
    writes_together = False

    def __init__(self, clients: Clients, limits: TimeLimits = ANY_LIMITS, sets: RequestLabels = NO_LABELS) -> None:
        """`sets`: of samples."""
        self._limits, self._sets = limits, sets
        self._clients = clients
        self._series = SeriesDays()
        self._tokens = InsertTokens()
        self._cleaned = time.monotonic()
        self._cluster = cluster.ONE_SERVER
        self._noted_hours: dict[int, tuple[float, float]] = {}

    def check(self) -> None:
        """Raises MigrationError where tables are missing."""
        self._cluster = check(self._clients.get(), self._clients.dsn)

    def decode(self, message: Message, cluster: str) -> Tables | DeadLetter:
        """Raises BadMessage."""
        if message.topic() == DEAD_LETTERS:
            return dead_letters.dead_letter(message)
        return decode(message.value(), message_id(message, cluster), self._limits, message.timestamp()[1], self._sets)

    def write(self, *ranges: MessageRange[Tables | DeadLetter]) -> None:
        """Inserts what is not stored yet. Raises the client's errors and DiskFullError; may then be called again with
        the same ranges."""
        for message_range in ranges:
            self._write(message_range)

    def try_out(self, messages: Sequence[Tables | DeadLetter], empty: bool) -> None:
        """See Sink. Raises the client's errors, and NotToBlame."""
        if len(_days(messages)) > MAX_DAYS:
            # Without one of them, the blocks might have other days, and a token other days than at an attempt before.
            raise NotToBlame(f"no message can be left out of a range with rows of over {MAX_DAYS} days")
        for table, rows in rows_of(messages):
            drop_in_clickhouse(self._clients.get(), table, rows.slice(0, 0) if empty else rows)

    def failed(self) -> None:
        """See Clients.discard."""
        self._clients.discard()

    def idle(self) -> None:
        """Deletes locations that nothing refers to, once a day, and looks whether there are enough insert tokens."""
        self._tokens.look(self._clients.get(), self._cluster)
        if time.monotonic() - self._cleaned > _CLEAN_S:
            self._cleaned = time.monotonic()
            drop_unused_locations(self._clients.get(), self._cluster)

    def close(self) -> None:
        """Nothing to do: everything written is stored."""

    def _write(self, message_range: MessageRange[Tables | DeadLetter]) -> None:
        stacks = [m for m in message_range.messages if isinstance(m, StackTables)]
        samples = [m for m in message_range.messages if isinstance(m, SampleTables)]
        activity = [m for m in message_range.messages if isinstance(m, ActivityTables)]
        letters = [m for m in message_range.messages if isinstance(m, DeadLetter)]
        name = message_range.name
        if letters:
            self._insert("dead_letters", [dead_letters.table(letters)], name)
        if stacks:
            self._insert("nodes", [m.nodes for m in stacks])
            self._insert("locations", [m.locations for m in stacks])
        if new_samples := self._not_stored(samples, message_range):
            self._insert_series(new_samples)
            rows = [m.rows.append_column("known_operation", m.known_operation) for m in new_samples]
            self._insert("samples", rows, name)
            note_added(self._clients.get(), (m.rows["time"] for m in new_samples), self._cluster)
            self._insert("batches", [stored_batches.table([m.batch for m in new_samples], name)], name)
        if new_activity := self._not_stored(activity, message_range):
            self._insert("spans", [m.spans for m in new_activity], name)
            self._insert("activity", [m.intervals for m in new_activity], name)
            intervals, spans = (m.intervals for m in new_activity), (m.spans for m in new_activity)
            note_requests(self._clients.get(), intervals, spans, self._noted_hours, self._cluster)
            self._insert("batches", [stored_batches.table([m.batch for m in new_activity], name)], name)

    def _not_stored(
        self, messages: Sequence[StoredT], message_range: MessageRange[Tables | DeadLetter]
    ) -> list[StoredT]:
        """Returns the messages to insert: each once, without those that another range stored; none where this range is
        complete.

        An attempt that is retried must insert the same messages as the first one, because the token stands for them.
        """
        if not messages:
            return []
        blocks = stored_batches.find(self._clients.get(), (m.batch.key for m in messages), self._cluster)
        name = message_range.name
        elsewhere = {key for key, block in blocks.items() if not message_range.retried or block != name}
        new: dict[stored_batches.BatchKey, StoredT] = {}
        for message in messages:
            if message.batch.key not in elsewhere:
                new.setdefault(message.batch.key, message)
        if len(messages) > len(new):
            metrics.DUPLICATES.labels(self.name, message_range.topic).inc(len(messages) - len(new))
        return [] if all(key in blocks for key in new) else list(new.values())

    def _insert_series(self, messages: list[SampleTables]) -> None:
        """Inserts series that were not written today, before their samples: every sample has its labels."""
        new: dict[int, Labels] = {}
        for message in messages:
            day = message.last_unix_nano // DAY_NS
            for series_id, labels in message.series.items():
                if not self._series.written(series_id, day):
                    new[series_id] = labels
        if new:
            last = max(message.last_unix_nano for message in messages)
            self._insert("series", [series_table(new, last)])
            self._series.add(new, last // DAY_NS)

    def _insert(self, table: str, parts: list[pa.Table], token: str | None = None) -> None:
        rows = concat(parts)
        if not rows.num_rows:
            return
        for number, block in enumerate(blocks_of_days(rows, MAX_DAYS)):
            name = f"{token}/{number}" if token and number else token
            settings = SETTINGS | ({"insert_deduplication_token": name} if name else {})
            if self._cluster.name:
                settings |= cluster.INSERT_SETTINGS
            with whole_parts(self._clients.get()):
                self._clients.get().insert_arrow(table, block, settings=settings)
        metrics.ROWS.labels(self.name, table).inc(rows.num_rows)


def _days(messages: Sequence[Tables | DeadLetter]) -> set[np.datetime64]:
    """Returns the days that the messages have rows of. Raises NotToBlame where they cannot be told."""
    times = [m.rows["time"] for m in messages if isinstance(m, SampleTables)]
    times += [m.intervals["start_time"] for m in messages if isinstance(m, ActivityTables)]
    try:
        return {day for column in times for day in np.unique(column.to_numpy().astype("datetime64[D]"))}
    except (TypeError, ValueError) as error:
        raise NotToBlame(f"the days of a range cannot be told: {error}") from error
