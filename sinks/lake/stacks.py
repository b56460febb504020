"""The lake's table `stacks`: the functions of each stack of the samples, so that SQL needs no walk up the call tree.

The whole table is made anew from `samples`, `nodes` and `locations`, in one commit: so it has the newest names also of
stacks that were stored before their names came. Nothing else writes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from icestream.columns import sorted_keys
from icestream.messages.raw import MAX_DEPTH
from sinks.lake.delta import Lake

TABLE = "stacks"
KEEP_REMOVED_HOURS = 24
"""How long the files of earlier builds are kept, for readers that still use them."""
UNKNOWN = "[unknown]"
"""The name of a location that has no name, file or address, or that is not stored."""
_NAMES = pa.large_list(pa.large_string())
_SCHEMA = pa.schema([("stack_id", pa.int64()), ("functions", pa.list_(pa.string()))])
_MERGE_ROWS = 1_000_000
_BLOCK_FRAMES = 200_000
"""Frames of one batch of rows: with the longest names, and all lines inlined, they take some hundred MB."""


def build_stacks(lake: Lake, since: date | None = None) -> int:
    """Replaces the table by the stacks of all samples, or of those from the day `since` on; returns their number.

    Needs about 600 MB of memory, and 200 bytes for each node of those months and its share of locations. Raises
    LookupError where the lake has no names or no samples yet, deltalake's errors and OSError.
    """
    samples, nodes, locations = (lake.open(name) for name in ("samples", "nodes", "locations"))
    if samples is None or nodes is None or locations is None:
        raise LookupError(f"{lake.uri} has no samples with names yet")
    stack_ids = sampled_stacks(samples, since)
    tree = _tree(nodes, locations, first_month(since))
    rows = sorted_keys.find(tree.node_ids, stack_ids)
    known = rows >= 0
    blocks = (
        pa.record_batch([stack_ids[known][block], tree.functions(rows[known][block])], schema=_SCHEMA)
        for block in _blocks(tree.depths(rows[known]))
    )
    lake.replace_all(TABLE, pa.RecordBatchReader.from_batches(_SCHEMA, blocks))
    return int(known.sum())


def sampled_stacks(samples: DeltaTable, since: date | None) -> np.ndarray:
    """Returns the stack IDs of all samples, or of those from a day on, int64 (n,), ascending."""
    ids: np.ndarray = one_each(read_columns(samples, ["stack_id"], "date", since), "stack_id")["stack_id"].to_numpy()
    return ids


def first_month(since: date | None) -> date | None:
    """Returns the first month of nodes and locations of samples from a day on.

    They are announced on each day of their use, which may be the last day of the month before.
    """
    return (since - timedelta(days=2)).replace(day=1) if since else None


def clean(lake: Lake) -> None:
    """Deletes the files of builds that were replaced a day ago. Raises deltalake's errors and OSError."""
    if (table := lake.open(TABLE)) is not None:
        table.vacuum(retention_hours=KEEP_REMOVED_HOURS, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()
        table.cleanup_metadata()


@dataclass(frozen=True)
class _Tree:
    """The call tree. A row is one of its nodes."""

    node_ids: np.ndarray  # int64 (n,), ascending
    parents: np.ndarray  # int64 (n,): the row of each node's parent, -1: it has none, or it is not stored
    location_rows: np.ndarray  # int64 (n,): the row of `names` that has the location of each node
    names: pa.LargeListArray  # for each location its functions, innermost first; the last is of unknown locations

    def depths(self, rows: np.ndarray) -> np.ndarray:
        """Returns how many nodes each stack has, int64 (m,)."""
        depths = np.zeros(len(rows), np.int64)
        for stacks, _ in self._walk(rows):
            depths[stacks] += 1
        return depths

    def functions(self, rows: np.ndarray) -> pa.ListArray:
        """Returns the functions of each stack, root first."""
        levels = list(self._walk(rows))
        stacks = np.concatenate([stacks for stacks, _ in levels])
        order = np.argsort(stacks, kind="stable")  # stack by stack, leaf first
        frames = self.names.take(pa.array(np.concatenate([self.location_rows[nodes] for _, nodes in levels])[order]))
        of_stack = np.bincount(stacks[order], frames.value_lengths().to_numpy(), len(rows)).astype(np.int64)
        ends = np.cumsum(of_stack)
        root_first = np.repeat(2 * ends - of_stack - 1, of_stack) - np.arange(ends[-1])
        functions = frames.flatten().take(pa.array(root_first))
        return pa.LargeListArray.from_arrays(np.concatenate([[0], ends]), functions).cast(_SCHEMA.field(1).type)

    def _walk(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields, from the leaves up, the stacks that have a node there and these nodes' rows."""
        stacks = np.arange(len(rows))
        for _ in range(MAX_DEPTH):
            if not len(stacks):
                return
            yield stacks, rows
            above = self.parents[rows]
            stacks, rows = stacks[above >= 0], above[above >= 0]


def _tree(nodes: DeltaTable, locations: DeltaTable, month: date | None) -> _Tree:
    named = one_each(_named(read_columns(locations, _LOCATION_COLUMNS, "month", month)), "location_id", "version")
    known = one_each(read_columns(nodes, ["node_id", "parent_id", "location_id"], "month", month), "node_id")
    node_ids, parent_ids = known["node_id"].to_numpy(), known["parent_id"].to_numpy()
    rows = sorted_keys.find(named["location_id"].to_numpy(), known["location_id"].to_numpy())
    return _Tree(
        node_ids=node_ids,
        parents=np.where(parent_ids == 0, -1, sorted_keys.find(node_ids, parent_ids)),
        location_rows=np.where(rows < 0, named.num_rows, rows),
        names=pa.concat_arrays([*named["functions"].chunks, pa.array([[UNKNOWN]], _NAMES)]),
    )


_LOCATION_COLUMNS = ["location_id", "version", "lines", "file", "address"]


def _named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turns the lines of locations into `functions`, innermost first; one without lines is called module+0xaddress."""
    for batch in batches:
        lengths = pc.fill_null(batch["lines"].value_lengths(), 0).to_numpy()
        lines = batch["lines"].flatten().field("function")
        nameless = np.flatnonzero(lengths == 0)
        modules = batch.select(["file", "address"]).take(pa.array(nameless)).to_pylist()
        names = pa.concat_arrays([lines, pa.array([_module_name(**module) for module in modules], pa.string())])
        ends = np.cumsum(np.maximum(lengths, 1))
        added = np.zeros(ends[-1] if len(ends) else 0, bool)
        added[ends[nameless] - 1] = True
        index = np.empty(len(added), np.int64)
        index[~added], index[added] = np.arange(len(lines)), len(lines) + np.arange(len(nameless))
        functions = names.take(pa.array(index)).cast(pa.large_string())
        lists = pa.LargeListArray.from_arrays(np.concatenate([[0], ends]), functions)
        yield pa.record_batch(
            [batch["location_id"], batch["version"], lists], names=["location_id", "version", "functions"]
        )


def _module_name(file: str, address: int) -> str:
    if not file and not address:
        return UNKNOWN
    return f"{file.rpartition('/')[2] or 'unknown'}+{address % 2**64:#x}"


def _blocks(depths: np.ndarray) -> Iterator[slice]:
    """Cuts stacks into blocks with a bounded number of frames."""
    ends = np.cumsum(depths)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(int(np.searchsorted(ends, before + _BLOCK_FRAMES, "right")), start + 1)
        yield slice(start, end)
        start = end


def read_columns(
    table: DeltaTable, columns: list[str], day_column: str, first: date | None
) -> Iterator[pa.RecordBatch]:
    """Reads a table from a day on; begins with a batch without rows."""
    rows = table.to_pyarrow_dataset()
    yield pa.RecordBatch.from_pylist([], pa.schema([rows.schema.field(name) for name in columns]))
    chosen = None if first is None else pc.field(day_column) >= pa.scalar(first)
    yield from rows.to_batches(columns=columns, filter=chosen)


def one_each(batches: Iterator[pa.RecordBatch], key: str, newest: str | None = None) -> pa.Table:
    """Returns a row for each `key`, ascending: of several the one with the highest `newest`.

    It holds twice as many rows as it returns, and a million, at most.
    """
    kept: pa.Table | None = None
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]))
        if sum(rows.num_rows for rows in waiting) >= max(_MERGE_ROWS, kept.num_rows if kept else 0):
            kept, waiting = _first_each(([kept] if kept else []) + waiting, key, newest), []
    return _first_each(([kept] if kept else []) + waiting, key, newest)


def _first_each(parts: list[pa.Table], key: str, newest: str | None) -> pa.Table:
    rows = pa.concat_tables(parts)
    keys = rows[key].to_numpy()
    order = np.lexsort((-rows[newest].to_numpy(), keys)) if newest else np.argsort(keys, kind="stable")
    first = np.ones(len(order), bool)
    first[1:] = keys[order][1:] != keys[order][:-1]
    return rows.take(pa.array(order[first])).combine_chunks()
