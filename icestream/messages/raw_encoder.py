"""Makes samples into the messages of one RawBatch: one, or several parts where it is too large.

Each part is self-contained: it has the stacks, locations, mappings, series and contexts of its samples, and no others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from icestream.columns import index_ranges, packed
from icestream.columns.row_indices import renumber, take_rows
from icestream.messages.checks import MAX_FILE, Labels
from icestream.times import HOUR_NS
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series
from icestream.v1.raw_pb2 import RawBatch

HEADER_BYTES = 2000
"""Room in each part for what `finish` adds."""

_SPAN_NS = HOUR_NS  # sample times are 32 bits of microseconds: 71 minutes


class LocationName(Protocol):
    """What the host calls a location in a mapping of kind NAMED."""

    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


class BatchMapping(Protocol):
    """A row of a batch's mappings."""

    @property
    def kind(self) -> int: ...

    @property
    def build_id(self) -> str: ...

    @property
    def file(self) -> str: ...


@dataclass(frozen=True)
class SentLines:
    """The n lines of l locations, as the sender of a profile gave them: location after location, innermost first."""

    count: np.ndarray  # int64 (l,)
    function: np.ndarray  # int64 (n,), rows of texts
    file: np.ndarray  # int64 (n,), rows of texts
    number: np.ndarray  # int64 (n,)
    start_line: np.ndarray  # int64 (n,), of the function; 0: not known
    texts: Sequence[str]


@dataclass(frozen=True)
class Stacks:
    """The l distinct locations and s distinct stacks of a window."""

    mapping: np.ndarray  # int64 (l,), row of mappings
    address: np.ndarray  # uint64 (l,)
    name: np.ndarray  # int64 (l,), row of names, 0: not named by the host
    depth: np.ndarray  # int64 (s,)
    frames: np.ndarray  # int64 (sum of depth,), rows of locations, leaf first
    mappings: Sequence[BatchMapping]  # mappings[0] is unknown
    names: Sequence[LocationName]  # names[0] is empty
    lines: SentLines | None = field(default=None, kw_only=True)  # None: no location has lines
    ids: np.ndarray | None = field(default=None, kw_only=True)  # uint64 (s,); None: streams compute them


@dataclass(frozen=True)
class Window:
    """What was sampled in a span of time: n samples, their stacks, series and contexts."""

    time_unix_nano: np.ndarray  # int64 (n,)
    series: np.ndarray  # int64 (n,), rows of labels
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack: np.ndarray  # int64 (n,), rows of stacks
    context: np.ndarray  # int64 (n,), 0: none, else row + 1 of the contexts
    stacks: Stacks
    labels: list[Labels]
    trace_ids: bytes
    span_ids: bytes
    start_unix_nano: int
    end_unix_nano: int
    value: np.ndarray | None = None  # int64 (n,), in the sample unit; None: each is worth the period
    count: np.ndarray | None = None  # int64 (n,), observations; None: each is one


def split(
    window: Window, common: RawBatch, limit: int = MAX_MESSAGE_BYTES, relabelled: Window | None = None
) -> list[bytes]:
    """The window as serialized parts without BatchId, each with the fields of `common`, at most `limit` bytes together
    with what `finish` adds. Only the first part has the lost and the dropped samples of `common`. A window without
    samples is one part. With `relabelled`, the parts have its samples, which are those of the window with shorter
    labels; which samples a part has depends on the window alone."""
    chosen = _parts(window, common, limit - HEADER_BYTES)
    if relabelled is None:
        parts = [part.message for part in chosen]
    else:
        parts = [_part(relabelled, part.rows, common, part.with_stacks).message for part in chosen]
    missing = RawBatch(lost_samples=common.lost_samples, dropped_samples=common.dropped_samples).SerializeToString()
    return [part + missing for part in parts[:1]] + parts[1:]


def finish(parts: list[bytes], batch_id: BatchId, published_unix_nano: int) -> list[bytes]:
    """The parts with their IDs and time of publishing (the fields of a message may come in any order)."""
    return [
        part
        + RawBatch(
            id=BatchId(
                collector=batch_id.collector,
                started_unix_nano=batch_id.started_unix_nano,
                sequence=batch_id.sequence,
                part=i,
                parts=len(parts),
            ),
            published_unix_nano=published_unix_nano,
        ).SerializeToString()
        for i, part in enumerate(parts)
    ]


def to_mapping(mapping: BatchMapping) -> Mapping:
    """Returns a mapping as messages have it; long paths are cut."""
    kind = Mapping.Kind.Name(mapping.kind)
    return Mapping(kind=kind, build_id=mapping.build_id, file=mapping.file[:MAX_FILE])


class _Part(NamedTuple):
    rows: np.ndarray  # int64, of the samples
    with_stacks: bool
    message: bytes


def _parts(window: Window, common: RawBatch, limit: int) -> Iterator[_Part]:
    if not len(window.pid):
        yield _part(window, np.empty(0, np.int64), common)
        return
    hours = (window.time_unix_nano - window.time_unix_nano.min()) // _SPAN_NS
    for hour in np.unique(hours):
        chosen = np.flatnonzero(hours == hour)
        # Samples of one stack stay together, so that it is in one part.
        yield from _halve(window, chosen[np.argsort(window.stack[chosen], kind="stable")], common, limit)


def _halve(window: Window, chosen: np.ndarray, common: RawBatch, limit: int) -> Iterator[_Part]:
    part = _part(window, np.sort(chosen), common)
    if len(part.message) <= limit:
        yield part
    elif len(chosen) == 1:
        yield _part(window, chosen, common, with_stacks=False)
    else:
        middle = len(chosen) // 2
        yield from _halve(window, chosen[:middle], common, limit)
        yield from _halve(window, chosen[middle:], common, limit)


def _part(window: Window, chosen: np.ndarray, common: RawBatch, with_stacks: bool = True) -> _Part:
    """One part: the samples `chosen` (rows, in the order of time) with everything they refer to."""
    message = RawBatch()
    message.CopyFrom(common)
    message.ClearField("lost_samples")
    message.ClearField("dropped_samples")
    times = window.time_unix_nano[chosen]
    message.start_unix_nano = min(int(times.min()), window.start_unix_nano) if len(times) else window.start_unix_nano
    if len(times) and int(times.max()) - message.start_unix_nano > _SPAN_NS:
        message.start_unix_nano = int(times.min())
    message.end_unix_nano = max(int(times.max()) + 1 if len(times) else 0, window.end_unix_nano)

    series, series_row = renumber(window.series[chosen], len(window.labels))
    for row in series.tolist():
        message.series.append(Series(labels=[Label(name=name, value=value) for name, value in window.labels[row]]))
    contexts, context_row = renumber(window.context[chosen], len(window.trace_ids) // 16 + 1, always=0)
    message.context_trace_ids = take_rows(window.trace_ids, 16, contexts[1:] - 1)
    message.context_span_ids = take_rows(window.span_ids, 8, contexts[1:] - 1)
    if with_stacks:
        stacks, stack_row = renumber(window.stack[chosen], len(window.stacks.depth))
        columns = _stack_columns(window.stacks, stacks, message)
    else:
        stack_row = np.zeros(len(chosen), np.int64)
        message.mappings.append(Mapping())
        columns = {"stack_depth": np.zeros(1, np.uint32)}
    columns |= {
        "sample_offset_us": (times - message.start_unix_nano) // 1000,
        "sample_series": series_row,
        "sample_pid": window.pid[chosen],
        "sample_tid": window.tid[chosen],
        "sample_stack": stack_row,
        "sample_context": context_row,
    }
    if window.value is not None:
        columns["sample_value"] = window.value[chosen]
    if window.count is not None:
        columns["sample_count"] = window.count[chosen]
    return _Part(chosen, with_stacks, packed.serialize(message, columns))


def _stack_columns(stacks: Stacks, chosen: np.ndarray, message: RawBatch) -> dict[str, np.ndarray]:
    """The columns of some stacks. Adds the mappings and strings that they need to the message."""
    depth = stacks.depth[chosen]
    frames = stacks.frames[index_ranges.rows_of(chosen, stacks.depth)]
    locations, frame_row = renumber(frames, len(stacks.mapping))
    mappings, mapping_row = renumber(stacks.mapping[locations], len(stacks.mappings), always=0)
    for row in mappings.tolist():
        message.mappings.append(to_mapping(stacks.mappings[row]))
    columns = {
        "stack_depth": depth,
        "stack_frames": frame_row,
        "location_mapping": mapping_row,
        "location_address": stacks.address[locations],
    }
    names, name_row = renumber(stacks.name[locations], len(stacks.names), always=0)
    strings = {"": 0}
    if len(names) > 1:
        chosen_names = [stacks.names[row] for row in names.tolist()]
        for column, texts in (
            ("location_function", [name.function for name in chosen_names]),
            ("location_file", [name.file for name in chosen_names]),
        ):
            columns[column] = np.array([strings.setdefault(text, len(strings)) for text in texts])[name_row]
        columns["location_line"] = np.array([name.line for name in chosen_names], np.uint32)[name_row]
    message.strings.extend(strings)
    if stacks.ids is not None:
        columns["stack_id"] = stacks.ids[chosen]
    if stacks.lines is not None:
        columns |= _line_columns(stacks.lines, locations, message)
    return columns


def _line_columns(lines: SentLines, locations: np.ndarray, message: RawBatch) -> dict[str, np.ndarray]:
    """The columns of the lines of some locations. Adds the strings that they need to the message."""
    count = lines.count[locations]
    rows = index_ranges.rows_of(locations, lines.count)
    texts, text_row = renumber(np.stack([lines.function[rows], lines.file[rows]]), len(lines.texts))
    function, file = text_row + len(message.strings)
    message.strings.extend(map(lines.texts.__getitem__, texts.tolist()))
    return {
        "location_line_count": count,
        "line_function": function,
        "line_file": file,
        "line_number": lines.number[rows],
        "line_start_line": lines.start_line[rows],
    }
