"""icestream.raw: RawBatch as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from icestream.columns import index_ranges, packed
from icestream.messages import checks, joined_columns
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
class StackFrames:
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
class RawColumns(StackFrames):
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


def read_header(data: bytes | None, times: Times = ANY_TIME) -> RawBatch:
    """Returns a message whose repeated fields are not read; the others are checked. Raises BadMessage."""
    message = checks.parse_header(RawBatch, data)
    _check_header(message, times)
    return message


def decode_raw(data: bytes | None, times: Times = ANY_TIME) -> RawColumns:
    """Raises BadMessage."""
    return decode_raws([data], [times])[0]


def decode_raws(data: Sequence[bytes | None], times: Sequence[Times]) -> list[RawColumns]:
    """Decodes several messages, which takes less time than one after the other. Raises BadMessage if any of them is
    bad, or where only together they are too much."""
    messages = [checks.parse(RawBatch, one) for one in data]
    for message, limits in zip(messages, times, strict=True):
        _check_header(message, limits)
    strings = [checks.encoded_strings(message.strings) for message in messages]
    mappings = [checks.mappings(message.mappings) for message in messages]
    contexts = [checks.contexts(message.context_trace_ids, message.context_span_ids) for message in messages]
    columns = _columns(messages, list(map(len, strings)), mappings, contexts)
    return [
        RawColumns(
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
            strings=own_strings,
            mappings=own_mappings,
            series=checks.labels(message.series),
            contexts=own_contexts,
            **own_columns,
        )
        for message, own_strings, own_mappings, own_contexts, own_columns in zip(
            messages, strings, mappings, contexts, columns, strict=True
        )
    ]


def _columns(
    messages: Sequence[RawBatch],
    strings: Sequence[int],
    mappings: Sequence[Sequence[Mapping]],
    contexts: Sequence[np.ndarray],
) -> list[dict[str, np.ndarray]]:
    """Returns the columns of each message. `strings`: how many each message has."""
    locations, locations_of = _locations(messages, strings, mappings)
    lines, lines_of = _lines(messages, locations["location_line_count"], locations_of, strings)
    stacks, frames, stacks_of, frames_of = _stacks(messages, locations_of)
    samples, samples_of = _samples(messages, stacks_of, contexts)
    if len(messages) == 1:
        return [locations | lines | stacks | frames | samples]
    columns: list[dict[str, np.ndarray]] = [{} for _ in messages]
    for part, counts in (
        (locations, locations_of), (lines, lines_of), (stacks, stacks_of), (frames, frames_of), (samples, samples_of),
    ):  # fmt: skip
        joined_columns.split(part, counts, columns)
    return columns


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


def _locations(
    messages: Sequence[RawBatch], strings: Sequence[int], mappings: Sequence[Sequence[Mapping]]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the columns, and how many rows each message has; so do the functions below."""
    counts, (mapping, address) = joined_columns.columns(messages, "location_mapping", "location_address")
    joined_columns.check_index("location_mapping", mapping, list(map(len, mappings)), counts)
    function, file, line, line_count = (
        joined_columns.column(messages, f"location_{name}", counts, default=0)
        for name in ("function", "file", "line", "line_count")
    )
    joined_columns.check_index("location_function", function, strings, counts)
    joined_columns.check_index("location_file", file, strings, counts)
    checks.check_column("location_line", line, checks.MAX_LINE)
    checks.check_column("location_line_count", line_count, MAX_SENT_LINES)
    kinds = [one.kind for one in chain.from_iterable(mappings)]
    if Mapping.NAMED in kinds:
        first = index_ranges.starts(np.array(list(map(len, mappings))))
        named = (np.array(kinds) == Mapping.NAMED)[mapping + joined_columns.of_rows(first.tolist(), counts)]
        address[named] = 0
        if line_count[named].any():
            raise BadMessage("location_line_count", "expected no lines of locations in a mapping of kind NAMED")
    return {
        "location_mapping": mapping,
        "location_address": address,
        "location_function": function,
        "location_file": file,
        "location_line": line,
        "location_line_count": line_count,
    }, counts


def _lines(
    messages: Sequence[RawBatch], line_count: np.ndarray, locations: np.ndarray, strings: Sequence[int]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    counts = joined_columns.sums(line_count, locations)
    names = ("line_function", "line_file", "line_number", "line_start_line")
    columns = {name: joined_columns.column(messages, name, counts) for name in names}
    for name in names[:2]:
        joined_columns.check_index(name, columns[name], strings, counts)
    for name in names[2:]:
        checks.check_column(name, columns[name], checks.MAX_LINE)
    return columns, counts


def _stacks(
    messages: Sequence[RawBatch], locations: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns the columns of stacks, those of their frames, and how many rows of both each message has."""
    depth, stacks = packed.columns(messages, "stack_depth")
    depth = depth.astype(np.int64)
    frames, frame_counts = packed.columns(messages, "stack_frames")
    checks.check_column("stack_depth", depth, MAX_DEPTH)
    for expected, got in zip(joined_columns.sums(depth, stacks).tolist(), frame_counts.tolist(), strict=True):
        if expected != got:
            raise BadMessage("stack_frames", f"expected {expected} frames, as stack_depth says, got {got}")
    joined_columns.check_index("stack_frames", frames, locations.tolist(), frame_counts)
    stack_id = joined_columns.column(messages, "stack_id", stacks, default=0)
    stack_id[depth == 0] = 0
    return {"stack_depth": depth, "stack_id": stack_id}, {"stack_frames": frames}, stacks, frame_counts


def _samples(
    messages: Sequence[RawBatch], stacks: np.ndarray, contexts: Sequence[np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    counts, (offset_us, series, pid, tid, stack) = joined_columns.columns(
        messages, "sample_offset_us", "sample_series", "sample_pid", "sample_tid", "sample_stack"
    )
    context = joined_columns.column(messages, "sample_context", counts, default=0)
    offset_ns = offset_us.astype(np.int64) * 1000
    window_ns = [message.end_unix_nano - message.start_unix_nano for message in messages]
    late = offset_ns >= joined_columns.of_rows(window_ns, counts)
    if late.any():
        raise BadMessage(
            "sample_offset_us", f"expected times within the window of {window_ns[0]} ns, got {offset_us[late].max()}"
        )
    joined_columns.check_index("sample_series", series, [len(message.series) for message in messages], counts)
    joined_columns.check_index("sample_stack", stack, stacks.tolist(), counts)
    joined_columns.check_index("sample_context", context, [len(one) + 1 for one in contexts], counts)
    count, value = _amounts(messages, counts)
    return {
        "time_unix_nano": offset_ns + joined_columns.of_rows([message.start_unix_nano for message in messages], counts),
        "sample_series": series,
        "sample_pid": pid,
        "sample_tid": tid,
        "sample_stack": stack,
        "sample_context": _known(messages, context, contexts, counts),
        "sample_count": count,
        "sample_value": value,
    }, counts


def _known(
    messages: Sequence[RawBatch], context: np.ndarray, contexts: Sequence[np.ndarray], counts: np.ndarray
) -> np.ndarray:
    """Returns the samples' contexts, 0 for those that are none, because their trace ID is zeros. But a sender to a
    gateway may know a span without its trace."""
    rows = np.flatnonzero(context)
    if len(rows):
        is_known = [
            (one if message.id.collector.startswith(GATEWAY) else one[:, :16]).any(axis=1)
            for message, one in zip(messages, contexts, strict=True)
        ]
        first = index_ranges.starts(np.array(list(map(len, contexts))))
        row = context + joined_columns.of_rows(first.tolist(), counts) - 1
        context[rows[~np.concatenate(is_known)[row[rows]]]] = 0
    return context


def _amounts(messages: Sequence[RawBatch], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts, int32, and values, int64, with their defaults filled in."""
    count = joined_columns.column(messages, "sample_count", counts, default=1)
    checks.check_column("sample_count", count, checks.MAX_OBSERVATIONS)
    given, given_of = packed.columns(messages, "sample_value")
    if len(given):
        value = joined_columns.column(messages, "sample_value", counts, default=0)
        checks.check_sum("sample_value", value)
        if (given_of == counts).all():
            return count.astype(np.int32), value.astype(np.int64)
    period = joined_columns.of_rows([message.period for message in messages], counts)
    checks.check_sum("sample_value", count.astype(float) * period.astype(float))
    by_period = count.astype(np.int64) * period
    if len(given):
        by_period = np.where(np.repeat(given_of > 0, counts), value, by_period)
    return count.astype(np.int32), by_period.astype(np.int64)
