"""Raw and activity messages for tests, from plain Python values; and what the messages that come out hold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from icestream import packed
from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch

START = 1_700_000_000 * 10**9
WINDOW_NS = 5 * 10**9
MAPPINGS = [
    Mapping(),
    Mapping(kind=Mapping.FILE, build_id="gnu:aa", file="/bin/a"),
    Mapping(kind=Mapping.FILE, file="/lib/without-build-id.so"),
    Mapping(kind=Mapping.NAMED, file="[jit]"),
]


@dataclass(frozen=True)
class Sample:
    time_us: int
    stack: int = 0
    tid: int = 1
    series: int = 0
    context: int = 0
    count: int = 1
    value: int = 10


@dataclass(frozen=True)
class Raw:
    """A RawBatch; stacks are lists of location rows, leaf first, a location is (mapping row, address or line)."""

    samples: Sequence[Sample] = ()
    stacks: Sequence[Sequence[int]] = ((0,),)
    locations: Sequence[tuple[int, int]] = ((1, 0x10),)
    series: Sequence[dict[str, str]] = ({"service": "a"},)
    contexts: Sequence[bytes] = ()  # 24 bytes each
    sequence: int = 1
    activity_sequence: int = 0
    start: int = START
    host: str = "host"
    started: int = 7
    part: int = 0
    parts: int = 1
    profile_type: str = DEFAULT_PROFILE_TYPE
    mappings: Sequence[Mapping] = field(default_factory=lambda: MAPPINGS)

    def message(self) -> RawBatch:
        """Without its columns."""
        contexts = b"".join(self.contexts)
        return RawBatch(
            id=BatchId(
                collector=self.host, started_unix_nano=self.started, sequence=self.sequence, part=self.part,
                parts=self.parts,
            ),
            host_id=self.host, profile_type=self.profile_type, start_unix_nano=self.start,
            end_unix_nano=self.start + WINDOW_NS, period=10, published_unix_nano=self.start + WINDOW_NS,
            activity_complete_unix_nano=self.start, activity_sequence=self.activity_sequence,
            strings=["", "f", "g", "file.js"], mappings=self.mappings,
            series=[Series(labels=[Label(name=n, value=v) for n, v in labels.items()]) for labels in self.series],
            context_trace_ids=b"".join(contexts[i : i + 16] for i in range(0, len(contexts), 24)),
            context_span_ids=b"".join(contexts[i + 16 : i + 24] for i in range(0, len(contexts), 24)),
        )  # fmt: skip

    def columns(self) -> dict[str, np.ndarray]:
        named = [self.mappings[mapping].kind == Mapping.NAMED for mapping, _ in self.locations]
        lists = {
            "location_mapping": [mapping for mapping, _ in self.locations],
            "location_address": [0 if n else a for n, (_, a) in zip(named, self.locations, strict=True)],
            "location_function": [1 + a % 2 if n else 0 for n, (_, a) in zip(named, self.locations, strict=True)],
            "location_file": [3 if n else 0 for n in named],
            "location_line": [a % 2**32 if n else 0 for n, (_, a) in zip(named, self.locations, strict=True)],
            "stack_depth": [len(stack) for stack in self.stacks],
            "stack_frames": [frame for stack in self.stacks for frame in stack],
            "sample_offset_us": [s.time_us for s in self.samples],
            "sample_series": [s.series for s in self.samples],
            "sample_pid": [100 for _ in self.samples],
            "sample_tid": [s.tid for s in self.samples],
            "sample_stack": [s.stack for s in self.samples],
            "sample_context": [s.context for s in self.samples],
            "sample_count": [s.count for s in self.samples],
            "sample_value": [s.value for s in self.samples],
        }
        return {
            name: np.array(values, dtype=np.uint64 if "address" in name else None) for name, values in lists.items()
        }

    def bytes(self) -> bytes:
        return packed.serialize(self.message(), {k: v for k, v in self.columns().items() if len(v)})


@dataclass(frozen=True)
class Interval:
    """[start_us, end_us) after START, of one thread in a context of 24 bytes."""

    tid: int
    start_us: int
    end_us: int
    context: bytes


def activity(
    intervals: Sequence[Interval], sequence: int = 1, host: str = "host", started: int = 7, complete: int = START
) -> bytes:
    """An ActivityBatch."""
    message = ActivityBatch(
        id=BatchId(collector=host, started_unix_nano=started, sequence=sequence, part=0, parts=1),
        host_id=host, complete_unix_nano=complete, published_unix_nano=complete, start_unix_nano=START, strings=[""],
        context_trace_ids=b"".join(i.context[:16] for i in intervals),
        context_span_ids=b"".join(i.context[16:] for i in intervals),
    )  # fmt: skip
    columns = {
        "interval_start_offset_ns": [i.start_us * 1000 for i in intervals],
        "interval_duration_ns": [(i.end_us - i.start_us) * 1000 for i in intervals],
        "interval_thread_cpu_ns": [0 for _ in intervals],
        "interval_pid": [100 for _ in intervals],
        "interval_tid": [i.tid for i in intervals],
        "interval_context": list(range(len(intervals))),
        "interval_service": [0 for _ in intervals],
    }
    return packed.serialize(message, {k: np.array(v) for k, v in columns.items() if v})


def context(number: int) -> bytes:
    """A context: trace and span ID of a number from 1."""
    return number.to_bytes(16, "big") + number.to_bytes(8, "big")


def raw_id(offset: int = 0, partition: int = 0) -> MessageId:
    return MessageId("cluster", RAW, partition, offset)


def activity_id(offset: int = 0, partition: int = 0) -> MessageId:
    return MessageId("cluster", ACTIVITY, partition, offset)


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
