"""Tries messages out on a store, which takes and drops their rows: so a sink finds out which ones the store refuses."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from clickhouse_connect.driver.query import arrow_buffer

from sinks.clickhouse import stored_batches
from sinks.clickhouse.cluster import DICTIONARIES
from sinks.tables.activity import ActivityTables
from sinks.tables.arrow import concat
from sinks.tables.samples import SampleTables, series_table
from sinks.tables.stacks import StackTables

_OF_VALUES = frozenset((6, 26, 27, 33, 38, 41, 43, 44, 53, 69, 70, 72, 117, 131, 321, 349, 407, 691))
"""Errors of ClickHouse that are about values: they cannot be read, converted or held by a column
(src/Common/ErrorCodes.cpp there). With any other error, a message may be refused that is a good one."""


class NotToBlame(Exception):
    """It cannot be said which message a store refuses, or the store has no room for any."""


def rows_of(messages: Sequence[object]) -> Iterator[tuple[str, pa.Table]]:
    """Yields each table into which messages go, and their rows, as if nothing of them were stored.

    Dead letters are left out: they have nowhere else to go.
    """
    stacks = [m for m in messages if isinstance(m, StackTables)]
    samples = [m for m in messages if isinstance(m, SampleTables)]
    activity = [m for m in messages if isinstance(m, ActivityTables)]
    if stacks:
        yield "nodes", concat([m.nodes for m in stacks])
        yield "locations", concat([m.locations for m in stacks])
    if samples:
        yield "series", concat([series_table(m.series, m.last_unix_nano) for m in samples])
        yield "samples", concat([m.rows for m in samples])
    if activity:
        yield "spans", concat([m.spans for m in activity])
        yield "activity", concat([m.intervals for m in activity])
    if batches := [m.batch for m in messages if isinstance(m, SampleTables | ActivityTables)]:
        yield "batches", stored_batches.table(batches, "")


def drop_in_clickhouse(client: Client, table: str, rows: pa.Table) -> None:
    """Has ClickHouse turn rows into a table's columns, and drop them. Raises NotToBlame and the client's errors."""
    try:
        columns = client.query(
            "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}"
            " AND default_kind NOT IN ('MATERIALIZED', 'ALIAS') ORDER BY position",
            parameters={"table": table},
        ).result_rows
        text = ", ".join(f"`{name}` {kind}" for name, kind in columns).replace("\\", "\\\\").replace("'", "\\'")
        names, data = arrow_buffer(rows)
        client.raw_insert(f"FUNCTION null('{text}')", names, data, DICTIONARIES | {"async_insert": 0}, "Arrow")
    except DatabaseError as error:
        if getattr(error, "code", None) in _OF_VALUES:
            raise
        raise NotToBlame(str(error)) from error
