"""Nodes of the call tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from api.array_types import Ids
from api.queries.database import Database
from api.queries.selection.id_lists import id_lists


@dataclass(frozen=True)
class StoredNodes:
    """Columns, one entry for each node; in any order, and a node may occur several times."""

    ids: Ids
    parent_ids: Ids
    location_ids: Ids


ROWS_FOR_ONE = 8192
"""How many rows ClickHouse reads to find one of a few random IDs."""


def read_nodes(database: Database, ids: Ids) -> StoredNodes:
    """The nodes with these IDs (at least one ID), without those that are not stored. Raises ApiError."""
    return concatenate(
        [_read(database, "WHERE node_id IN {ids:Array(UInt64)}", {"ids": each}) for each in id_lists(ids)]
    )


def read_all_nodes(database: Database) -> StoredNodes:
    """In ascending order of their IDs. Raises ApiError."""
    return _read(database, "ORDER BY node_id", {})


def count_nodes(database: Database) -> int:
    """How many rows the table has. Raises ApiError."""
    return int(database.table("SELECT count() FROM nodes").column(0)[0].as_py())


def concatenate(parts: Sequence[StoredNodes]) -> StoredNodes:
    """Several (at least one) as one."""
    return StoredNodes(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.parent_ids for part in parts]),
        np.concatenate([part.location_ids for part in parts]),
    )


def _read(database: Database, where: str, parameters: dict[str, Any]) -> StoredNodes:
    answer = database.table(f"SELECT node_id, parent_id, location_id FROM nodes {where}", parameters)
    return StoredNodes(*(column.to_numpy() for column in answer.columns))
