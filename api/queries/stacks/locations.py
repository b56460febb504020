"""Locations and their lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from api.array_types import Ids
from api.queries.database import Database
from api.queries.selection.id_lists import id_lists


@dataclass(frozen=True)
class TableState:
    """Changes whenever a location is added or gets other lines."""

    count: int
    max_version: int
    sum_of_versions: int


def read_locations(database: Database, ids: Ids) -> Iterator[pa.Table]:
    """Yields tables as of `read_all_locations`, of the locations with these IDs. Raises ApiError."""
    for each in id_lists(ids):
        yield _read(database, "WHERE location_id IN {ids:Array(UInt64)}", {"ids": each})


def read_all_locations(database: Database) -> pa.Table:
    """Raises ApiError.

    Columns: location_id, version (a higher one has better lines), kind, build_id, file, address; and with an entry for
    each line, innermost first: function, source, line, start_line. A location may occur in several versions.
    """
    return _read(database, "", {})


def count_locations(database: Database) -> int:
    """How many rows the table has. Raises ApiError."""
    return int(database.table("SELECT count() FROM locations").column(0)[0].as_py())


def read_table_state(database: Database) -> TableState:
    """Raises ApiError."""
    answer = database.table("SELECT count(), max(version), sum(version) FROM locations")
    return TableState(*(int(column[0].as_py()) for column in answer.columns))


def read_versions(database: Database) -> tuple[Ids, Ids]:
    """IDs of all locations with symbols, and the versions of their lines. Raises ApiError."""
    answer = database.table("SELECT location_id, version FROM locations WHERE version > 0")
    ids, versions = (column.to_numpy() for column in answer.columns)
    return ids, versions


def _read(database: Database, where: str, parameters: dict[str, Any]) -> pa.Table:
    return database.table(
        "SELECT location_id, version, kind, toString(build_id) AS build_id, toString(file) AS file, address,"
        " lines.function AS function, lines.file AS source, lines.line AS line, lines.start_line AS start_line"
        f" FROM locations {where}",
        parameters,
    )
