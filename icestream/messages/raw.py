"""icestream.raw: RawBatch as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icestream import packed
from icestream.messages import checks
from icestream.messages.checks import BadMessage, Labels
from icestream.messages.plausible import ANY_TIME, Times, check_spread
from icestream.v1.common_pb2 import BatchId, Mapping
from icestream.v1.raw_pb2 import RawBatch

MAX_DEPTH = 4096
"""Frames in a stack."""
GATEWAY = "gateway:"
"""What the collector of a batch begins with that the gateway made: each of these batches is a run of its own."""
MAX_SENT_LINES = 256
"""Lines of a location that the sender of a profile gave."""


@dataclass(frozen=True, kw_only=True)
class Frames:
    """What IDs of stacks are computed from: s stacks, f frames, l locations. Every index is in range."""

    strings: Sequence[str]
    mappings: Sequence[Mapping]
    location_mapping: np.ndarray  # integers (l,)
    location_address: np.ndarray  # uint64 (l,), 0 for locations that the host named
    location_function: np.ndarray  # integers (l,), index into strings
    location_file: np.ndarray  # integers (l,), index into strings
    location_line: np.ndarray  # integers (l,)
    location_line_count: np.ndarray  # integers (l,), lines that the sender of a profile gave
    line_function: np.ndarray  # integers (lines,), index into strings; location after location, innermost line first
    line_file: np.ndarray  # integers (lines,), index into strings
    line_number: np.ndarray  # integers (lines,)
    line_start_line: np.ndarray  # integers (lines,), 0: not known
    stack_depth: np.ndarray  # int64 (s,)
    stack_frames: np.ndarray  # integers (f,), location rows, leaf first, stack after stack
    stack_id: np.ndarray  # uint64 (s,), as the sender gave it; 0: it gave none, or the stack is empty


@dataclass(frozen=True, kw_only=True)
class RawColumns(Frames):
    """A checked RawBatch: n samples, c contexts, and the frames of the samples. Every index is in range."""

    id: BatchId
    host_id: str
    profile_type: str
    start_unix_nano: int
    end_unix_nano: int
    period: int
    published_unix_nano: int
    clock_offset_ns: int  # Unix times of the batch minus the host's CLOCK_MONOTONIC
    activity_complete_unix_nano: int
    activity_sequence: int
    lost_samples: int
    dropped_samples: int
    configured_period: int
    series: list[Labels]
    contexts: np.ndarray  # uint8 (c, 24): trace ID, span ID
    time_unix_nano: np.ndarray  # int64 (n,)
    sample_series: np.ndarray  # uint32 (n,)
    sample_pid: np.ndarray  # uint32 (n,)
    sample_tid: np.ndarray  # uint32 (n,)
    sample_stack: np.ndarray  # uint32 (n,)
    sample_context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of a context that is not zeros
    sample_count: np.ndarray  # int32 (n,)
    sample_value: np.ndarray  # int64 (n,)

    @property
    def time_monotonic_ns(self) -> np.ndarray:
        """The samples' times by the host's CLOCK_MONOTONIC: int64 (n,)."""
        return self.time_unix_nano - self.clock_offset_ns

    @property
    def start_monotonic_ns(self) -> int:
        return self.start_unix_nano - self.clock_offset_ns

    @property
    def end_monotonic_ns(self) -> int:
        return self.end_unix_nano - self.clock_offset_ns


def decode_raw(data: bytes | None, times: Times = ANY_TIME) -> RawColumns:
    """Raises BadMessage."""
    message = checks.parse(RawBatch, data)
    _check_header(message, times)
    strings = checks.encoded_strings(message.strings)
    mappings = checks.mappings(message.mappings)
    contexts = checks.contexts(message.context_trace_ids, message.context_span_ids)
    locations = _locations(message, len(strings), mappings)
    stacks = _stacks(message, len(locations["location_mapping"]))
    return RawColumns(
        id=message.id,
        host_id=message.host_id,
        profile_type=message.profile_type,
        start_unix_nano=message.start_unix_nano,
        end_unix_nano=message.end_unix_nano,
        period=message.period,
        published_unix_nano=message.published_unix_nano,
        clock_offset_ns=message.clock_offset_ns,
        activity_complete_unix_nano=message.activity_complete_unix_nano,
        activity_sequence=message.activity_sequence,
        lost_samples=message.lost_samples,
        dropped_samples=message.dropped_samples,
        configured_period=message.configured_period or message.period,
        strings=strings,
        mappings=mappings,
        series=checks.labels(message.series),
        contexts=contexts,
        **locations,
        **stacks,
        **_samples(message, len(stacks["stack_depth"]), contexts),
    )


def _check_header(message: RawBatch, times: Times) -> None:
    checks.check_batch_id("id", message.id)
    checks.check_id("host_id", message.host_id)
    checks.check_profile_type(message.profile_type)
    times.check("start_unix_nano", message.start_unix_nano)
    times.check("end_unix_nano", message.end_unix_nano)
    checks.check_clock_offset(message.clock_offset_ns)
    if message.start_unix_nano > message.end_unix_nano:
        raise BadMessage(
            "end_unix_nano",
            f"expected {message.start_unix_nano} (start_unix_nano) or later, got {message.end_unix_nano}",
        )
    check_spread("end_unix_nano", message.start_unix_nano, message.end_unix_nano)
    times.check_or_zero("published_unix_nano", message.published_unix_nano)
    times.check_or_zero("activity_complete_unix_nano", message.activity_complete_unix_nano)
    checks.check_most("activity_sequence", message.activity_sequence, checks.MAX_SEQUENCE)
    for name in ("lost_samples", "dropped_samples"):
        checks.check_most(name, getattr(message, name), checks.MAX_COUNT)
    for name in ("period", "configured_period"):
        checks.check_most(name, getattr(message, name), checks.MAX_PERIOD)


def _locations(message: RawBatch, strings: int, mappings: list[Mapping]) -> dict[str, np.ndarray]:
    mapping, address = checks.columns(message, "location_mapping", "location_address")
    checks.check_index("location_mapping", mapping, len(mappings))
    function, file, line = (
        checks.column(message, f"location_{name}", len(mapping), default=0) for name in ("function", "file", "line")
    )
    checks.check_index("location_function", function, strings)
    checks.check_index("location_file", file, strings)
    checks.check_column("location_line", line, checks.MAX_LINE)
    lines = _lines(message, len(mapping), strings)
    kinds = [one.kind for one in mappings]
    if Mapping.NAMED in kinds:
        named = (np.array(kinds) == Mapping.NAMED)[mapping]
        address[named] = 0
        if lines["location_line_count"][named].any():
            raise BadMessage("location_line_count", "expected no lines of locations in a mapping of kind NAMED")
    return {
        "location_mapping": mapping,
        "location_address": address,
        "location_function": function,
        "location_file": file,
        "location_line": line,
        **lines,
    }


def _lines(message: RawBatch, locations: int, strings: int) -> dict[str, np.ndarray]:
    count = checks.column(message, "location_line_count", locations, default=0)
    checks.check_column("location_line_count", count, MAX_SENT_LINES)
    names = ("line_function", "line_file", "line_number", "line_start_line")
    columns = {name: checks.column(message, name, int(count.sum())) for name in names}
    for name in names[:2]:
        checks.check_index(name, columns[name], strings)
    for name in names[2:]:
        checks.check_column(name, columns[name], checks.MAX_LINE)
    return {"location_line_count": count, **columns}


def _stacks(message: RawBatch, locations: int) -> dict[str, np.ndarray]:
    depth = packed.column(message, "stack_depth").astype(np.int64)
    frames = packed.column(message, "stack_frames")
    checks.check_column("stack_depth", depth, MAX_DEPTH)
    if depth.sum() != len(frames):
        raise BadMessage("stack_frames", f"expected {depth.sum()} frames, as stack_depth says, got {len(frames)}")
    checks.check_index("stack_frames", frames, locations)
    stack_id = checks.column(message, "stack_id", len(depth), default=0)
    stack_id[depth == 0] = 0
    return {"stack_depth": depth, "stack_frames": frames, "stack_id": stack_id}


def _samples(message: RawBatch, stacks: int, contexts: np.ndarray) -> dict[str, np.ndarray]:
    offset_us, series, pid, tid, stack = checks.columns(
        message, "sample_offset_us", "sample_series", "sample_pid", "sample_tid", "sample_stack"
    )
    context = checks.column(message, "sample_context", len(offset_us), default=0)
    window_ns = message.end_unix_nano - message.start_unix_nano
    if len(offset_us) and int(offset_us.max()) * 1000 >= window_ns:
        raise BadMessage(
            "sample_offset_us", f"expected times within the window of {window_ns} ns, got {offset_us.max()}"
        )
    checks.check_index("sample_series", series, len(message.series))
    checks.check_index("sample_stack", stack, stacks)
    checks.check_index("sample_context", context, len(contexts) + 1)
    count, value = _amounts(message, len(offset_us))
    if len(contexts):
        # A context whose trace ID is zeros is none. But who sends to a gateway may know a span without its trace.
        known = contexts if message.id.collector.startswith(GATEWAY) else contexts[:, :16]
        context_row = np.arange(len(contexts) + 1, dtype=np.uint32)
        context_row[1:][~known.any(axis=1)] = 0
        context = context_row[context]
    return {
        "time_unix_nano": offset_us.astype(np.int64) * 1000 + message.start_unix_nano,
        "sample_series": series,
        "sample_pid": pid,
        "sample_tid": tid,
        "sample_stack": stack,
        "sample_context": context,
        "sample_count": count,
        "sample_value": value,
    }


def _amounts(message: RawBatch, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts, int32, and values, int64, with their defaults filled in."""
    count = checks.column(message, "sample_count", rows, default=1)
    checks.check_column("sample_count", count, checks.MAX_OBSERVATIONS)
    if len(packed.column(message, "sample_value")):
        value = checks.column(message, "sample_value", rows)
        checks.check_sum("sample_value", value)
    else:
        checks.check_sum("sample_value", count.astype(float) * float(message.period))
        value = count.astype(np.int64) * message.period
    return count.astype(np.int32), value.astype(np.int64)
