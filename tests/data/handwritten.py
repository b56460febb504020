"""Raw and activity batches written by hand, from plain Python values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from icestream.columns import packed
from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from tests.data import messages

START = 1_700_000_000 * 10**9
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
    pid: int = 100


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
    clock_offset_ns: int = 0
    mappings: Sequence[Mapping] = field(default_factory=lambda: MAPPINGS)

    def message(self) -> RawBatch:
        """The message without its columns."""
        batch = messages.batch_id(self.sequence, self.host, self.started, self.part, self.parts)
        return messages.raw_header(
            batch, self.start, profile_type=self.profile_type, period=10, activity_complete_unix_nano=self.start,
            activity_sequence=self.activity_sequence, clock_offset_ns=self.clock_offset_ns,
            strings=["", "f", "g", "file.js"], mappings=self.mappings,
            series=[messages.raw_series(labels) for labels in self.series], **messages.contexts(self.contexts),
        )  # fmt: skip

    def columns(self) -> dict[str, np.ndarray]:
        named = [self.mappings[mapping].kind == Mapping.NAMED for mapping, _ in self.locations]
        lists = {
            "location_mapping": [mapping for mapping, _ in self.locations],
            "location_address": [0 if n else a for n, (_, a) in zip(named, self.locations, strict=True)],
            "location_function": [1 + a % 2 if n else 0 for n, (_, a) in zip(named, self.locations, strict=True)],
            "location_file": [3 if n else 0 for n in named],
            "location_line": [a % 2**31 if n else 0 for n, (_, a) in zip(named, self.locations, strict=True)],
            "stack_depth": [len(stack) for stack in self.stacks],
            "stack_frames": [frame for stack in self.stacks for frame in stack],
            "sample_offset_us": [s.time_us for s in self.samples],
            "sample_series": [s.series for s in self.samples],
            "sample_pid": [s.pid for s in self.samples],
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
        return packed.serialize(self.message(), self.columns())


@dataclass(frozen=True)
class Interval:
    """[start_us, end_us) after START, of one thread in a context of 24 bytes."""

    tid: int
    start_us: int
    end_us: int
    context: bytes
    pid: int = 100
    operation: str = ""


def activity(
    intervals: Sequence[Interval],
    sequence: int = 1,
    host: str = "host",
    started: int = 7,
    complete: int = START,
    clock_offset_ns: int = 0,
) -> bytes:
    """An ActivityBatch."""
    columns = {
        "interval_start_offset_ns": [i.start_us * 1000 for i in intervals],
        "interval_duration_ns": [(i.end_us - i.start_us) * 1000 for i in intervals],
        "interval_pid": [i.pid for i in intervals],
        "interval_tid": [i.tid for i in intervals],
        "interval_context": range(len(intervals)),
    }
    batch = messages.batch_id(sequence, host, started)
    strings = list(dict.fromkeys(["", *(i.operation for i in intervals)]))
    fields = messages.contexts([i.context for i in intervals]) | {
        "strings": strings, "context_operation": [strings.index(i.operation) for i in intervals]
    }  # fmt: skip
    return messages.activity_batch(
        batch, START, columns, complete_unix_nano=complete, clock_offset_ns=clock_offset_ns, **fields
    )


def raw_id(offset: int = 0, partition: int = 0) -> MessageId:
    return MessageId("cluster", RAW, partition, offset)


def activity_id(offset: int = 0, partition: int = 0) -> MessageId:
    return MessageId("cluster", ACTIVITY, partition, offset)
