"""icestream.stacks: StackBatch as columns."""

from dataclasses import dataclass

import numpy as np

from icestream.messages import checks
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_TIME, Times
from icestream.v1.common_pb2 import Mapping, Source
from icestream.v1.stacks_pb2 import StackBatch


@dataclass(frozen=True)
class StackColumns:
    """A checked StackBatch: n nodes, l locations, m lines. Every index is in range."""

    source: Source  # empty where names come late, mostly from `resolve`
    published_unix_nano: int
    seen_unix_nano: int
    strings: list[str]
    mappings: list[Mapping]
    node_id: np.ndarray  # uint64 (n,)
    node_parent_id: np.ndarray  # uint64 (n,), 0: a root
    node_location_id: np.ndarray  # uint64 (n,)
    location_id: np.ndarray  # uint64 (l,)
    location_mapping: np.ndarray  # uint32 (l,), row of mappings
    location_address: np.ndarray  # uint64 (l,)
    location_version: np.ndarray  # uint64 (l,), 0: not named
    location_line_count: np.ndarray  # int64 (l,), the lines of all locations follow each other; they sum up to m
    line_function: np.ndarray  # uint32 (m,), index into strings
    line_file: np.ndarray  # uint32 (m,), index into strings
    line_number: np.ndarray  # uint32 (m,)
    line_start_line: np.ndarray  # uint32 (m,)


def decode_stacks(data: bytes | None, times: Times = ANY_TIME) -> StackColumns:
    """Raises BadMessage. Any time up to the last one of `times` is fine: `resolve` names locations that are old."""
    message = checks.parse(StackBatch, data)
    times = Times(last=times.last)
    times.check("seen_unix_nano", message.seen_unix_nano)
    times.check("published_unix_nano", message.published_unix_nano)
    strings = checks.strings(message.strings)
    node_id, node_parent_id, node_location_id = checks.columns(message, "node_id", "node_parent_id", "node_location_id")
    location_id, mapping, address, version, line_count = checks.columns(
        message, "location_id", "location_mapping", "location_address", "location_version", "location_line_count"
    )
    checks.check_index("location_mapping", mapping, len(message.mappings))
    function, file, number, start_line = checks.columns(
        message, "line_function", "line_file", "line_number", "line_start_line"
    )
    line_count = line_count.astype(np.int64)
    if line_count.sum() != len(function):
        raise BadMessage(
            "line_function", f"expected {line_count.sum()}, as location_line_count says, got {len(function)}"
        )
    checks.check_index("line_function", function, len(strings))
    checks.check_index("line_file", file, len(strings))
    checks.check_rows_text("line_function", function, strings)
    checks.check_rows_text("line_file", file, strings)
    checks.check_column("line_number", number, checks.MAX_LINE)
    checks.check_column("line_start_line", start_line, checks.MAX_LINE)
    checks.check_column("location_version", version, checks.MAX_VERSION)
    return StackColumns(
        source=message.source,
        published_unix_nano=message.published_unix_nano,
        seen_unix_nano=message.seen_unix_nano,
        strings=strings,
        mappings=checks.mappings(message.mappings),
        node_id=node_id,
        node_parent_id=node_parent_id,
        node_location_id=node_location_id,
        location_id=location_id,
        location_mapping=mapping,
        location_address=address,
        location_version=version,
        location_line_count=line_count,
        line_function=function,
        line_file=file,
        line_number=number,
        line_start_line=start_line,
    )
