"""Nodes, locations and series of a slice in the lake: those that a table lacks in their month are appended."""

from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.rows import JobLake, retried
from jobs.staging.staging import Staging
from sinks.lake.delta import to_delta

_KEYS = {
    "series": ["series_id", "month"],
    "nodes": ["node_id", "month"],
    "locations": ["location_id", "month", "version"],
}
"""What a row is recognised by."""
_TIME = "toDateTime64(last_seen, 3, 'UTC') AS last_seen"


def add_names(lake: JobLake, staging: Staging, dry_run: bool) -> "Counter[str]":
    """Returns how many rows each table gets, or would get.

    Raises deltalake's errors, OSError and the client's errors.
    """
    added: Counter[str] = Counter()
    for name, columns in _KEYS.items():
        order = "version DESC" if name == "locations" else columns[0]
        rows = staging.client.query_arrow(
            f"SELECT * REPLACE ({_TIME}) FROM {staging.table(name)} ORDER BY {order}", use_strings=True
        )
        if rows.num_rows:
            added[name] = retried(lake, partial(_append, lake, name, to_delta(name, rows), dry_run))
    return added


def _append(lake: JobLake, name: str, rows: pa.Table, dry_run: bool) -> int:
    new = _lacking(lake, name, rows)
    if new.num_rows and not dry_run:
        lake.append(name, new)
    return len(new)


def _lacking(lake: JobLake, name: str, rows: pa.Table) -> pa.Table:
    """Returns each row once that the table lacks. A location without a name is lacking if no row names it."""
    columns = _KEYS[name]
    known = _known(lake, name, rows)
    named = {key[:2] for key in known}
    keep = []
    for key in zip(*(rows[column].to_pylist() for column in columns), strict=True):
        lacking = key not in known and (name != "locations" or key[2] != 0 or key[:2] not in named)
        keep.append(lacking)
        known.add(key)
        named.add(key[:2])
    return rows.filter(pa.array(keep, pa.bool_()))


def _known(lake: JobLake, name: str, rows: pa.Table) -> set[tuple[object, ...]]:
    """Returns the keys that the table has of the IDs and months of these rows."""
    table = lake.open(name)
    if table is None:
        return set()
    columns = _KEYS[name]
    ids = np.unique(rows[columns[0]].to_numpy())
    months = [str(month) for month in pc.unique(rows["month"]).to_pylist()]
    known: set[tuple[object, ...]] = set()
    for batch in table.to_pyarrow_dataset(file_pruning_predicate=[("month", "in", months)]).to_batches(columns=columns):
        hit = batch.filter(pa.array(np.isin(batch.column(0).to_numpy(), ids)))
        known.update(zip(*(hit.column(column).to_pylist() for column in columns), strict=True))
    return known
