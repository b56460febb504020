"""The ClickHouse sink: icestream.samples, icestream.stacks and icestream.activity to tables, each row once.

A range of messages is inserted as one block whose deduplication token is the range's name, and its batches after it,
into `batches`. Three things make that once:
- a batch that is in `batches` is not inserted again, whoever sent it a second time;
- a range that was in flight when a sink died is written again under the same name: ClickHouse drops blocks with a token
  it knows, table by table, so what the crash left out is filled in (also `trace_samples`, behind its view) and what is
  there stays single;
- a range in flight whose batches are in `batches` was written completely.
Nodes, locations, series and spans are the same row when they come twice (ReplacingMergeTree).

The tables remember the tokens of their latest 10,000 blocks.
"""

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from icestream.clickhouse import Clients
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, SAMPLES, STACKS
from sinks import metrics, stored_batches
from sinks.migrate import check
from sinks.ranges import Range
from sinks.retention import drop_unused_locations
from sinks.tables import activity, samples, stacks
from sinks.tables.arrow import together

Decoded = samples.Samples | stacks.Stacks | activity.Activity

SETTINGS = {
    "async_insert": 0,  # a token names one block of ours, not a mix of several clients'
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_partitions_per_insert_block": 0,  # late samples of many days in one block are no mistake here
}
_SERIES_KEPT = 200_000
_CLEAN_S = 86_400.0


class ClickHouseSink:
    """Writes ranges of decoded messages; see the module. Used by one thread."""

    name = "clickhouse"
    group = CLICKHOUSE_GROUP
    topics: tuple[str, ...] = (STACKS, SAMPLES, ACTIVITY)
    keeps_ranges = True

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._series: dict[int, int] = {}  # series ID -> day it was last written
        self._cleaned = time.monotonic()

    def check(self) -> None:
        """Raises MigrationError where tables are missing."""
        check(self._clients.get(), self._clients.dsn)

    def decode(self, message: Message, cluster: str) -> Decoded:
        """Raises BadMessage."""
        topic, data = message.topic(), message.value()
        if topic == SAMPLES:
            return samples.decode(data)
        if topic == STACKS:
            return stacks.decode(data)
        return activity.decode(data, cluster, message.partition() or 0, message.offset() or 0)

    def write(self, message_range: Range[Decoded]) -> None:
        """Inserts what of the range is not there yet. Raises the client's errors; may then be called again with it."""
        found_stacks = [m for m in message_range.messages if isinstance(m, stacks.Stacks)]
        found_samples = [m for m in message_range.messages if isinstance(m, samples.Samples)]
        found_activity = [m for m in message_range.messages if isinstance(m, activity.Activity)]
        if found_stacks:
            self._insert("nodes", [m.nodes for m in found_stacks])
            self._insert("locations", [m.locations for m in found_stacks])
        if new_samples := self._absent(found_samples, message_range):
            self._insert_series(new_samples)
            self._insert("samples", [m.rows for m in new_samples], message_range.name)
            self._insert(
                "batches",
                [stored_batches.table([m.batch for m in new_samples], message_range.name)],
                message_range.name,
            )
        if new_activity := self._absent(found_activity, message_range):
            self._insert("spans", [m.spans for m in new_activity])
            self._insert("activity", [m.intervals for m in new_activity], message_range.name)
            self._insert(
                "batches",
                [stored_batches.table([m.batch for m in new_activity], message_range.name)],
                message_range.name,
            )

    def failed(self) -> None:
        """See Clients.discard."""
        self._clients.discard()

    def idle(self) -> None:
        """Deletes locations that nothing refers to, once a day."""
        if time.monotonic() - self._cleaned > _CLEAN_S:
            self._cleaned = time.monotonic()
            drop_unused_locations(self._clients.get())

    def close(self) -> None:
        """Nothing to do: everything written is stored."""

    def _absent(self, messages: Sequence[Any], message_range: Range[Decoded]) -> list[Any]:
        """Messages to insert: all that are not stored by another range, once each; none where this range is complete.

        Of a range that is written again it must be the same ones as the first time, because the token stands for them.
        """
        if not messages:
            return []
        stored = stored_batches.find(self._clients.get(), (m.batch.key for m in messages))
        others = {mark for mark, block in stored.items() if not message_range.again or block != message_range.name}
        fresh: dict[stored_batches.BatchKey, Any] = {}
        for message in messages:
            if message.batch.key not in others:
                fresh.setdefault(message.batch.key, message)
        if len(messages) > len(fresh):
            metrics.DUPLICATES.labels(self.name, message_range.topic).inc(len(messages) - len(fresh))
        return [] if all(mark in stored for mark in fresh) else list(fresh.values())

    def _insert_series(self, messages: list[samples.Samples]) -> None:
        """Series that were not written today; before their samples, so that a sample found has its labels."""
        new: dict[int, dict[str, str]] = {}
        for message in messages:
            day = message.last_unix_nano // (86_400 * 10**9)
            for series_id, labels in message.series.items():
                if self._series.get(series_id, -1) < day:
                    new[series_id] = labels
        if new:
            last = max(message.last_unix_nano for message in messages)
            self._insert("series", [samples.series_table(new, last)])
            if len(self._series) + len(new) > _SERIES_KEPT:
                self._series.clear()
            self._series |= dict.fromkeys(new, last // (86_400 * 10**9))

    def _insert(self, table: str, parts: list[pa.Table], token: str | None = None) -> None:
        rows = together(parts)
        if not rows.num_rows:
            return
        settings = SETTINGS | ({"insert_deduplication_token": token} if token else {})
        self._clients.get().insert_arrow(table, rows, settings=settings)
        metrics.ROWS.labels(self.name, table).inc(rows.num_rows)
