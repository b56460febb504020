"""Finds stacks of samples whose names the lake lacks, and fills them in with what the API answers.

A lake lacks names where its sink began to read after Kafka had deleted their announcements.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa

from icestream.columns import sorted_keys
from icestream.messages.raw import MAX_DEPTH
from icestream.messages.stacks import StackColumns
from icestream.names_api import NamesApi
from sinks.lake.delta import Lake, to_delta
from sinks.lake.stacks import first_month, one_each, read_columns, sampled_stacks
from sinks.tables.stacks import stack_tables

_ROOT, _LACKING = -1, -2


@dataclass(frozen=True)
class StoredNames:
    """The nodes and locations that the lake has."""

    node_ids: np.ndarray  # int64 (n,), ascending
    above: np.ndarray  # int64 (n,): the row of each node's parent; _ROOT; _LACKING: it or the location is not stored
    location_ids: np.ndarray  # int64 (l,), ascending

    def lacking(self, stack_ids: np.ndarray) -> np.ndarray:
        """Returns those stacks (int64; none is 0) of which a node or a location is not stored."""
        rows = sorted_keys.find(self.node_ids, stack_ids)
        rows[rows < 0] = _LACKING
        for _ in range(MAX_DEPTH):
            inside = rows >= 0
            if not inside.any():
                break
            rows[inside] = self.above[rows[inside]]
        lacking: np.ndarray = stack_ids[rows == _LACKING]
        return lacking


def read_stored_names(lake: Lake, since: date | None) -> StoredNames:
    """Reads what the lake has for samples from a day on. Raises deltalake's errors and OSError."""
    nodes, locations = lake.open("nodes"), lake.open("locations")
    nothing = np.empty(0, np.int64)
    if nodes is None or locations is None:
        return StoredNames(nothing, nothing, nothing)
    month, columns = first_month(since), ["node_id", "parent_id", "location_id"]
    of_nodes = one_each(read_columns(nodes, columns, "month", month), "node_id")
    location_ids = one_each(read_columns(locations, ["location_id"], "month", month), "location_id")
    node_ids, parent_ids, locations_of = (of_nodes[name].to_numpy() for name in columns)
    known_locations = location_ids["location_id"].to_numpy()
    above = sorted_keys.find(node_ids, parent_ids).astype(np.int64)
    above[above < 0] = _LACKING
    above[parent_ids == 0] = _ROOT
    above[sorted_keys.find(known_locations, locations_of) < 0] = _LACKING
    return StoredNames(node_ids, above, known_locations)


@dataclass(frozen=True)
class Filled:
    """How many stacks of samples there are, lacked names, and got them."""

    stacks: int
    lacking: int
    filled: int


def fill_names(lake: Lake, names: NamesApi, since: date | None = None) -> Filled:
    """Appends the nodes and locations that the lake lacks of the stacks of all samples, or of those from a day on.

    Raises NoNamesError where the API does not answer, LookupError where the lake has no samples, deltalake's errors and
    OSError.
    """
    if (samples := lake.open("samples")) is None:
        raise LookupError(f"{lake.uri} has no samples yet")
    stack_ids = sampled_stacks(samples, since)
    stack_ids = stack_ids[stack_ids != 0]
    stored = read_stored_names(lake, since)
    lacking = stored.lacking(stack_ids)
    nodes, locations = answered(names.ask(lacking.view(np.uint64).tolist()))
    _append_new(lake, "nodes", nodes, "node_id", stored.node_ids)
    _append_new(lake, "locations", locations, "location_id", stored.location_ids)
    left = read_stored_names(lake, since).lacking(lacking) if len(lacking) else lacking
    return Filled(len(stack_ids), len(lacking), len(lacking) - len(left))


def answered(announced: Iterable[StackColumns]) -> tuple[list[pa.Table], list[pa.Table]]:
    """Returns the rows of `nodes` and of `locations` that the API has answered with, in Delta's types."""
    tables = [stack_tables(columns) for columns in announced]
    return [to_delta("nodes", each.nodes) for each in tables], [
        to_delta("locations", each.locations) for each in tables
    ]


def _append_new(lake: Lake, name: str, parts: list[pa.Table], id_column: str, known: np.ndarray) -> None:
    if not parts:
        return
    rows = one_each((batch for part in parts for batch in part.to_batches()), id_column)
    new = rows.filter(pa.array(sorted_keys.find(known, rows[id_column].to_numpy()) < 0))
    if new.num_rows:
        lake.append(name, new)
