"""icestream.stacks as rows of `nodes` and `locations`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.messages.stacks import StackColumns
from sinks.tables import arrow


@dataclass(frozen=True)
class StackTables:
    """One StackBatch."""

    nodes: pa.Table
    locations: pa.Table
    published_unix_nano: int


def stack_tables(columns: StackColumns) -> StackTables:
    """Returns the rows of a message."""
    nodes = pa.table(
        {
            "node_id": columns.node_id,
            "parent_id": columns.node_parent_id,
            "location_id": columns.node_location_id,
            "last_seen": arrow.last_seen(columns.seen_unix_nano, len(columns.node_id)),
        }
    )
    return StackTables(nodes=nodes, locations=_locations(columns), published_unix_nano=columns.published_unix_nano)


def _locations(columns: StackColumns) -> pa.Table:
    mapping = columns.location_mapping
    kinds = np.array([mapping.kind for mapping in columns.mappings], np.uint8)
    return pa.table(
        {
            "location_id": columns.location_id,
            "kind": kinds[mapping],
            "build_id": arrow.texts(mapping, [mapping.build_id for mapping in columns.mappings]),
            "file": arrow.texts(mapping, [mapping.file for mapping in columns.mappings]),
            "address": columns.location_address,
            "version": columns.location_version,
            "lines": _lines(columns),
            "last_seen": arrow.last_seen(columns.seen_unix_nano, len(mapping)),
        }
    )


def _lines(columns: StackColumns) -> pa.Array:
    """Returns the lines of each location as a list of structs."""
    ends = np.cumsum(columns.location_line_count)
    names = pa.array(columns.strings, pa.string())
    structs = pa.StructArray.from_arrays(
        [
            names.take(pa.array(columns.line_function)),
            names.take(pa.array(columns.line_file)),
            pa.array(columns.line_number),
            pa.array(columns.line_start_line),
        ],
        names=["function", "file", "line", "start_line"],
    )
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), structs)
