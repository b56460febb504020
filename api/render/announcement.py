"""Nodes of the call tree and their locations as icestream.stacks announces them."""

import io
import time
from typing import Any

import numpy as np
from google.protobuf import proto

from api.array_types import Ids
from api.queries.database import Database, texts
from api.queries.stacks.locations import read_locations
from api.queries.stacks.nodes import StoredNodes
from api.tree.distinct import distinct_ids
from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.symbols.line import Line
from icestream.v1.common_pb2 import Mapping
from icestream.v1.stacks_pb2 import StackBatch


def announcement(database: Database, nodes: StoredNodes) -> bytes:
    """Messages StackBatch, each after its length (a varint), as protobuf's libraries read and write several in one
    stream. The locations have their newest lines. Raises ApiError."""
    columns = NodeColumns(nodes.ids, nodes.parent_ids, nodes.location_ids)
    locations = _locations(database, distinct_ids(nodes.location_ids)) if len(nodes.ids) else None
    data, now = io.BytesIO(), time.time_ns()
    if locations is not None:
        for message in encode_stacks(None, now, now, columns, locations):
            proto.serialize_length_prefixed(StackBatch.FromString(message), data)
    return data.getvalue()


def _locations(database: Database, ids: Ids) -> LocationColumns:
    newest: dict[int, dict[str, Any]] = {}
    for answer in read_locations(database, ids):
        columns = [texts(answer[name]) if name in _TEXTS else answer[name].to_pylist() for name in _COLUMNS]
        for values in zip(*columns, strict=True):
            row = dict(zip(_COLUMNS, values, strict=True))
            known = newest.setdefault(row["location_id"], row)
            if row["version"] > known["version"]:
                newest[row["location_id"]] = row
    rows = list(newest.values())
    mappings = {(row["kind"], row["build_id"], row["file"]): index for index, row in enumerate(rows)}
    return LocationColumns(
        id=np.array([row["location_id"] for row in rows], np.uint64),
        address=np.array([row["address"] for row in rows], np.uint64),
        mapping=np.array([mappings[row["kind"], row["build_id"], row["file"]] for row in rows], np.int64),
        mappings=[Mapping(kind=row["kind"], build_id=row["build_id"], file=row["file"]) for row in rows],
        names=[LocationNames(row["version"], _lines(row)) for row in rows],
    )


def _lines(row: dict[str, Any]) -> tuple[Line, ...]:
    texts_of = ([text.decode(errors="replace") for text in row[name]] for name in ("function", "source"))
    return tuple(Line(*line) for line in zip(*texts_of, row["line"], row["start_line"], strict=True))


_COLUMNS = ("location_id", "version", "kind", "build_id", "file", "address", "function", "source", "line", "start_line")
_TEXTS = ("build_id", "file")
