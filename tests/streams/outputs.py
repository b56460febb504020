"""What the messages that the stream processors publish hold."""

from collections import Counter
from collections.abc import Sequence

from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch

Row = tuple[int, int, int, int, int, bytes]


def rows(messages: Sequence[bytes]) -> "Counter[Row]":
    """What samples hold: (time in ms, series, pid, tid, stack, context) -> value, corrections added up; no zeros."""
    found: Counter[Row] = Counter()
    for message in messages:
        batch = SampleBatch.FromString(message)
        columns = zip(
            batch.sample_offset_ms, batch.sample_series, batch.sample_pid, batch.sample_tid, batch.sample_stack_id,
            batch.sample_context, batch.sample_value, strict=True,
        )  # fmt: skip
        for time_ms, series, pid, tid, stack, at, value in columns:
            trace = batch.context_trace_ids[16 * (at - 1) : 16 * at] if at else b""
            span = batch.context_span_ids[8 * (at - 1) : 8 * at] if at else b""
            key = (batch.start_unix_milli + time_ms, batch.series[series].id, pid, tid, stack, trace + span)
            found[key] += value
    return Counter({key: value for key, value in found.items() if value})


def stacks(messages: Sequence[bytes]) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[str, ...]]]:
    """What announcements hold: node -> (parent, location), location -> functions."""
    nodes: dict[int, tuple[int, int]] = {}
    locations: dict[int, tuple[str, ...]] = {}
    for message in messages:
        batch = StackBatch.FromString(message)
        assert len(batch.node_id) == len(batch.node_parent_id) == len(batch.node_location_id)
        for node, parent, location in zip(batch.node_id, batch.node_parent_id, batch.node_location_id, strict=True):
            nodes[node] = (parent, location)
        line = 0
        for location, lines in zip(batch.location_id, batch.location_line_count, strict=True):
            functions = batch.line_function[line : line + lines]
            locations[location] = tuple(batch.strings[function] for function in functions)
            line += lines
        assert line == len(batch.line_function)
    return nodes, locations
