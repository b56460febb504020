"""icestream.stacks: StackBatch to the columns of `nodes` and `locations`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.v1.stacks_pb2 import StackBatch
from sinks.tables import arrow as c


@dataclass(frozen=True)
class Stacks:
    """One StackBatch."""

    nodes: pa.Table
    locations: pa.Table
    published_unix_nano: int


def decode(data: bytes | None) -> Stacks:
    """Raises BadMessage."""
    message = c.parse(StackBatch, data)
    if max(message.seen_unix_nano, message.published_unix_nano) >= c.MAX_UNIX_NANO:
        raise c.BadMessage("seen_unix_nano or published_unix_nano after 2100")
    node, parent, location = c.columns(message, "node_id", "node_parent_id", "node_location_id")
    nodes = pa.table(
        {
            "node_id": node,
            "parent_id": parent,
            "location_id": location,
            "last_seen": c.last_seen(message.seen_unix_nano, len(node)),
        }
    )
    return Stacks(nodes=nodes, locations=_locations(message), published_unix_nano=message.published_unix_nano)


def _locations(message: StackBatch) -> pa.Table:
    location, mapping, address, version, depth = c.columns(
        message, "location_id", "location_mapping", "location_address", "location_version", "location_line_count"
    )
    c.check_rows(mapping, len(message.mappings), "location_mapping")
    kinds = np.array([m.kind & 0xFF for m in message.mappings], np.uint8)
    n = len(location)
    return pa.table(
        {
            "location_id": location,
            "kind": kinds[mapping] if n else kinds[:0],
            "build_id": c.texts(mapping, [m.build_id for m in message.mappings]),
            "file": c.texts(mapping, [m.file for m in message.mappings]),
            "address": address,
            "version": version,
            "lines": _lines(message, depth),
            "last_seen": c.last_seen(message.seen_unix_nano, n),
        }
    )


def _lines(message: StackBatch, depth: np.ndarray) -> pa.Array:
    """The lines of each location as a list of structs."""
    function, file, number, start = c.columns(message, "line_function", "line_file", "line_number", "line_start_line")
    ends = np.cumsum(depth, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if total != len(function):
        raise c.BadMessage(f"location_line_count says {total} lines, there are {len(function)}")
    strings = c.text_list(list(message.strings))
    c.check_rows(function, len(strings), "line_function")
    c.check_rows(file, len(strings), "line_file")
    names = pa.array(strings, pa.string())
    structs = pa.StructArray.from_arrays(
        [names.take(pa.array(function)), names.take(pa.array(file)), pa.array(number), pa.array(start)],
        names=["function", "file", "line", "start_line"],
    )
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), structs)
