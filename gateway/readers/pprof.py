"""Reads pprof profiles (schemas/icestream/pprof/profile.proto)."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from gateway.errors import bad_profile
from gateway.labels import host_id, to_labels
from gateway.profile_types import (
    COUNT,
    CPU,
    ValueType,
    counted_by,
    cpu_time,
    observations,
    profile_type,
    value_type,
    value_types,
)
from gateway.readers.location_table import ProfileLocations
from gateway.readers.number_messages import portions
from gateway.readers.pprof_locations import distinct_locations
from gateway.readers.pprof_tables import (
    ById,
    PprofSamples,
    read_functions,
    read_locations,
    read_mappings,
    read_samples,
    text_of,
)
from gateway.readers.stack_table import ProfileSamples, StackTable
from gateway.sent_profile import SentProfile, Values
from icestream import ids
from icestream.clickhouse.gauges import is_gauge
from icestream.columns import index_ranges
from icestream.columns.row_indices import distinct
from icestream.messages import identify
from icestream.messages.checks import Labels
from icestream.messages.raw import MAX_DEPTH
from icestream.messages.raw_encoder import Window
from icestream.pprof.profile_pb2 import ProfileTables
from icestream.pprof.profile_pb2 import ValueType as PprofValueType

MAX_SAMPLE_TYPES = 32
_PIDS = ("pid", "process_id")
_TIDS = ("thread_id", "tid")
_CONTEXT = ("trace_id", "span_id")
_COLUMNS = frozenset((*_PIDS, *_TIDS, *_CONTEXT))
"""Labels that are columns of samples, and no labels of series."""

Label = tuple[int, int, int]
"""The key, the text and the number of a label, as pprof has them."""


@dataclass(frozen=True)
class Source:
    """What a request says of a profile beside the profile."""

    labels: Labels
    name: str = ""  # of the profile type; empty: as the sample types say
    start_unix_nano: int = 0  # 0: as the profile says
    end_unix_nano: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What of the labels was not taken: what, and how often."""


def read_pprof(data: bytes, source: Source, max_series: int) -> SentProfile:
    """Reads a profile that is not compressed. Raises Refused."""
    try:
        profile = ProfileTables.FromString(data)
    except DecodeError as error:
        raise bad_profile(f"no pprof profile: {error}") from None
    # One text that is no UTF-8, such as a label that a program took from a request, must not cost the whole profile.
    strings = [text.decode("utf-8", "replace") for text in profile.string_table]
    types = _value_types(profile, strings)
    start, end = _times(profile, source)
    reader = _Reader(strings, source.labels, max_series)
    dropped = reader.table.dropped
    dropped.update(source.dropped)
    functions = read_functions(profile.function, strings, dropped)
    location_ids, lines = read_locations(profile.location, functions, dropped)
    mappings = read_mappings(profile.mapping, strings)
    locations, row = distinct_locations(location_ids, lines, functions, mappings)
    by_id = ById(location_ids.id)
    parts = [reader.read(read_samples(part), by_id, row, locations, len(types)) for part in portions(profile.sample)]
    values = np.concatenate([part.values for part in parts])
    own_time = profile.time_nanos or source.start_unix_nano
    return SentProfile(
        window=reader.window(start, end, parts, locations),
        values=_without_differences(
            _values(profile, types, values, source.name, _value_type(profile.period_type, strings)), dropped
        ),
        host_id=host_id(source.labels),
        identity=data if own_time else b"",
        dropped=dropped,
    )


def _value_types(profile: ProfileTables, strings: Sequence[str]) -> list[ValueType]:
    if not strings or strings[0]:
        raise bad_profile('string_table: expected "" as the first string')
    if not 0 < len(profile.sample_type) <= MAX_SAMPLE_TYPES:
        raise bad_profile(f"sample_type: expected 1 to {MAX_SAMPLE_TYPES}, got {len(profile.sample_type)}")
    return value_types([(text_of(strings, one.type), text_of(strings, one.unit)) for one in profile.sample_type])


def _value_type(given: PprofValueType, strings: Sequence[str]) -> ValueType:
    return value_type(text_of(strings, given.type), text_of(strings, given.unit))


def _times(profile: ProfileTables, source: Source) -> tuple[int, int]:
    """Returns when the profile begins and ends; it ends now where nobody says when it was taken."""
    duration = max(profile.duration_nanos, 0)
    start = source.start_unix_nano or profile.time_nanos
    if start <= 0:
        start = time.time_ns() - duration
    return start, max(source.end_unix_nano, start + duration, start + 1)


def _values(
    profile: ProfileTables, types: Sequence[ValueType], values: np.ndarray, name: str, period_type: ValueType
) -> list[Values]:
    counts = counted_by(types)
    period = max(0, profile.period)
    if list(types) == [COUNT] and period_type == CPU and period:
        return [Values(profile_type(name, CPU, CPU), period, cpu_time(values[:, 0], period), values[:, 0])]
    found = {profile_type(name, one, period_type): i for i, one in enumerate(types) if i != counts}
    if len(found) < len(types) - (counts is not None) or types.count(COUNT) > 1:
        raise bad_profile("sample_type: expected each type once")

    def count(i: int) -> np.ndarray | None:
        if counts is not None:
            return values[:, counts]
        return observations(values[:, i], period) if types[i] == period_type == CPU and period else None

    return [Values(kind, period, values[:, i], count(i)) for kind, i in found.items()]


def _without_differences(values: Sequence[Values], dropped: Counter[str]) -> Sequence[Values]:
    """Leaves out the gauges of a difference of two profiles, as Go's /debug/pprof/allocs?seconds=15: by how much there
    is more or less is not how much there is. Its other types are what came meanwhile."""
    gauges = [one for one in values if is_gauge(one.profile_type)]
    if len(gauges) == len(values) or not any((one.value < 0).any() for one in gauges):
        return values
    dropped["differences"] += len(gauges)
    return [one for one in values if not is_gauge(one.profile_type)]


class _Stacks(NamedTuple):
    """s stacks."""

    id: np.ndarray  # uint64 (s,), 0: it is empty
    depth: np.ndarray  # int64 (s,)
    frames: np.ndarray  # int64 (sum of depth,), rows of locations, leaf first

    def distinct(self) -> "tuple[_Stacks, np.ndarray]":
        """Returns the distinct stacks, and the row among these of each stack."""
        first, row = distinct(self.id)
        frames = self.frames[index_ranges.rows_of(first, self.depth)]
        return _Stacks(self.id[first], self.depth[first], frames), row


class _Read(NamedTuple):
    """n samples, read together."""

    values: np.ndarray  # int64 (n, types)
    stacks: _Stacks
    columns: np.ndarray  # int64 (5, n): series, pid, tid, context; and the row of the stack


class _Reader:
    """Reads the samples of one profile."""

    def __init__(self, strings: Sequence[str], labels: Labels, max_series: int) -> None:
        self.table = StackTable(max_series)
        self._strings = strings
        self._of_profile = labels

    @cached_property
    def _columns(self) -> set[int]:
        """Rows of strings. Most profiles have no labels, and need none."""
        return {row for row, text in enumerate(self._strings) if text in _COLUMNS}

    def read(
        self, samples: PprofSamples, by_id: ById, location_row: np.ndarray, locations: ProfileLocations, types: int
    ) -> _Read:
        """`location_row`: of each location that `by_id` finds. Raises Refused."""
        found = np.bincount(samples.value.message, minlength=samples.count)
        if (found != types).any():
            got = found[found != types][0]
            raise bad_profile(f"sample.value: expected {types} values, as there are types, got {got}")
        try:
            frames = location_row[by_id.rows(samples.location_id.value)]
        except KeyError as error:
            raise bad_profile(f"sample.location_id: there is no location {error}") from None
        depth = np.bincount(samples.location_id.message, minlength=samples.count)
        if depth.max(initial=0) > MAX_DEPTH:
            frames = frames[index_ranges.positions(depth) < MAX_DEPTH]
            self.table.dropped["frames"] += int(depth.sum()) - len(frames)
            depth = np.minimum(depth, MAX_DEPTH)
        stack_id = identify.ids_of_stacks(locations.ids, frames, depth)
        stacks, row = _Stacks(stack_id, depth, frames).distinct()
        values = samples.value.value.view(np.int64).reshape(-1, types)
        return _Read(values, stacks, np.vstack([self._labelled(samples), row]))

    def window(
        self, start_unix_nano: int, end_unix_nano: int, parts: Sequence[_Read], locations: ProfileLocations
    ) -> Window:
        """Returns all samples. Raises Refused where a time fits no message."""
        stacks, row = _Stacks(*map(np.concatenate, zip(*(part.stacks for part in parts), strict=True))).distinct()
        series, pid, tid, context, stack = np.hstack([part.columns for part in parts])
        stack += np.repeat(
            index_ranges.starts(np.array([len(part.stacks.id) for part in parts])), [len(part.values) for part in parts]
        )
        time = np.full(len(stack), start_unix_nano)
        rows = ProfileSamples(time, series, pid.astype(np.uint32), tid.astype(np.uint32), row[stack], context)
        return self.table.window(
            start_unix_nano, end_unix_nano, rows, locations.stacks(stacks.depth, stacks.frames, stacks.id)
        )

    def _labelled(self, samples: PprofSamples) -> np.ndarray:
        """Returns series, process, thread and context of each sample: int64 (4, samples). Reads equal labels once."""
        labels = samples.labels
        count = np.bincount(labels.sample, minlength=samples.count)
        one = ids.combine(ids.combine(labels.key, labels.text), labels.number)
        key = index_ranges.sums(ids.combine(one, index_ranges.positions(count)), count)
        first, row = distinct(key)
        seen = np.bincount(row, minlength=len(first)).tolist()
        rows = index_ranges.rows_of(first, count)
        each = zip(*(column[rows].tolist() for column in labels[1:]), strict=True)
        made = [
            self._read_labels(list(islice(each, size)), of_samples)
            for size, of_samples in zip(count[first].tolist(), seen, strict=True)
        ]
        columns: np.ndarray = np.array(made, np.int64).reshape(-1, 4).T[:, row]
        return columns

    def _read_labels(self, labels: Sequence[Label], samples: int) -> tuple[int, int, int, int]:
        """Returns series, process, thread and context of so many samples."""
        texts = self._texts(labels, samples)
        context = self.table.context(texts.get("trace_id", ""), texts.get("span_id", ""), samples)
        key = tuple([(name, text) for name, text, _ in labels if text and name not in self._columns])
        if key:
            series = self.table.series_of_sample(key, lambda: self._labels(key), self._of_profile, samples)
        else:
            series = self.table.series(self._of_profile)
        return series, _number(texts, _PIDS), _number(texts, _TIDS), context

    def _texts(self, labels: Sequence[Label], samples: int) -> dict[str, str]:
        """Returns the labels that are columns of samples."""
        texts = {}
        for key, text, number in labels:
            name = text_of(self._strings, key)
            if name in _COLUMNS:
                texts[name] = text_of(self._strings, text) if text else str(number)
            elif not text:
                self.table.dropped["numeric_labels"] += samples
        return texts

    def _labels(self, texts: Sequence[tuple[int, int]]) -> Labels:
        """Returns the labels of a sample's series: those of the profile, and its own texts, by their keys."""
        own = [(text_of(self._strings, name), text_of(self._strings, text)) for name, text in texts]
        return to_labels([*self._of_profile, *own], self.table.dropped)


def _number(texts: dict[str, str], names: Sequence[str]) -> int:
    """Returns the process or thread ID that one of the labels has, else 0."""
    text = next((texts[name] for name in names if name in texts), "")
    number = int(text) if text.isdecimal() and len(text) <= 10 else 0
    return number if number < 2**32 else 0
