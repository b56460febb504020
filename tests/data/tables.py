"""Rows of the tables, and the IDs in them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import connect
from icestream.ids import combine, mapping_id, series_id
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.clickhouse.migrate import migrate

NO_TRACE, NO_SPAN = bytes(16), bytes(8)

_DEFAULTS: dict[str, dict[str, object]] = {
    "samples": {
        "profile_type": DEFAULT_PROFILE_TYPE, "pid": 7, "tid": 8, "trace_id": NO_TRACE, "span_id": NO_SPAN, "count": 1
    },
    "activity": {"pid": 7, "tid": 8},
    "spans": {"parent_span_id": NO_SPAN},
}  # fmt: skip


def make_tables(engine: str, database: str) -> Iterator[Client]:
    """A client of a new database with all tables."""
    admin = connect(engine)
    admin.command(f"CREATE DATABASE {database}")
    client = connect(engine, database=database)
    migrate(client)
    yield client
    client.close()
    admin.close()


def insert_columns(client: Client, table: str, **columns: object) -> None:
    """Inserts rows: a list or an array has a value for each row, any other value is that of all rows.

    Raises ValueError where no column is a list or an array, or their lengths differ.
    """
    columns = _DEFAULTS.get(table, {}) | columns
    lengths = {len(values) for values in columns.values() if isinstance(values, (list, np.ndarray))}
    if len(lengths) != 1:
        raise ValueError(f"{table}: expected columns of one length, got the lengths {sorted(lengths)}")
    (count,) = lengths
    if count:
        data = [values if isinstance(values, (list, np.ndarray)) else [values] * count for values in columns.values()]
        client.insert(table, data, column_names=list(columns), column_oriented=True)


def insert_rows(client: Client, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Inserts rows that all have the columns of the first one."""
    if rows:
        insert_columns(client, table, **{name: [row[name] for row in rows] for name in rows[0]})


def insert_series(client: Client, labels: Iterable[dict[str, str]], last_seen: datetime) -> None:
    """Inserts the series of these labels, each once."""
    distinct = {series_id(one.items()): one for one in labels}
    insert_columns(client, "series", series_id=list(distinct), labels=list(distinct.values()), last_seen=last_seen)


def location_id(build_id: str, file: str, address: int) -> int:
    return _combine(mapping_id(build_id, file), address)


def node_id(parent_id: int, location: int) -> int:
    """The ID of the node of a location below another node, or below none (0)."""
    return _combine(parent_id, location)


def to_datetime(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, timezone.utc)


def _combine(first: int, second: int) -> int:
    return int(combine(np.array([first], np.uint64), np.array([second], np.uint64))[0])
