"""Reads pprof profiles (schemas/icestream/pprof/profile.proto)."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

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
from gateway.readers.stack_table import SampleLists, StackTable
from gateway.sent_profile import SentProfile, Values
from icestream.clickhouse.gauges import is_gauge
from icestream.messages.checks import Labels
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
    strings = [text.decode(errors="replace") for text in profile.string_table]
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
    values = np.concatenate(
        [reader.read(read_samples(part), by_id, row, start, len(types)) for part in portions(profile.sample)]
    )
    own_time = profile.time_nanos or source.start_unix_nano
    return SentProfile(
        window=reader.table.window(start, end, reader.rows, locations),
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


class _Reader:
    """Reads the samples of one profile."""

    def __init__(self, strings: Sequence[str], labels: Labels, max_series: int) -> None:
        self.table = StackTable(max_series)
        self.rows = SampleLists()
        self._strings = strings
        self._of_profile = labels

    @cached_property
    def _columns(self) -> set[int]:
        """Rows of strings. Most profiles have no labels, and need none."""
        return {row for row, text in enumerate(self._strings) if text in _COLUMNS}

    def read(
        self, samples: PprofSamples, locations: ById, location_row: np.ndarray, time_unix_nano: int, types: int
    ) -> np.ndarray:
        """Returns the values of all samples: int64 (samples, types)."""
        found = np.bincount(samples.value.message, minlength=samples.count)
        if (found != types).any():
            got = found[found != types][0]
            raise bad_profile(f"sample.value: expected {types} values, as there are types, got {got}")
        try:
            frames = location_row[locations.rows(samples.location_id.value)].tolist()
        except KeyError as error:
            raise bad_profile(f"sample.location_id: there is no location {error}") from None
        depths = np.bincount(samples.location_id.message, minlength=samples.count)
        label_counts = np.bincount(samples.labels.sample, minlength=samples.count)
        labels = zip(*(column.tolist() for column in samples.labels[1:]), strict=True)
        values: np.ndarray = samples.value.value.view(np.int64).reshape(-1, types)
        ends = np.cumsum(depths).tolist()
        stacks = [self.table.stack(tuple(frames[begin:end])) for begin, end in pairwise([0, *ends])]
        if not label_counts.any():
            self._add_unlabelled(stacks, time_unix_nano)
            return values
        for stack, label_count in zip(stacks, label_counts.tolist(), strict=True):
            if label_count:
                self._add(list(islice(labels, label_count)), time_unix_nano, stack)
            else:
                self._add_unlabelled([stack], time_unix_nano)
        return values

    def _add_unlabelled(self, stacks: Sequence[int], time_unix_nano: int) -> None:
        if stacks:
            self.rows.add_all(time_unix_nano, self.table.series(self._of_profile), stacks)

    def _add(self, labels: Sequence[Label], time_unix_nano: int, stack: int) -> None:
        texts = self._texts(labels)
        pid, tid = _number(texts, _PIDS), _number(texts, _TIDS)
        context = self.table.context(texts.get("trace_id", ""), texts.get("span_id", ""))
        key = tuple([(name, text) for name, text, _ in labels if text and name not in self._columns])
        series = self.table.series_of_sample(key, lambda: self._labels(key), self._of_profile)
        self.rows.add(time_unix_nano, series, pid, tid, stack, context)

    def _texts(self, labels: Sequence[Label]) -> dict[str, str]:
        """Returns the labels that are columns of samples."""
        texts = {}
        for key, text, number in labels:
            name = text_of(self._strings, key)
            if name in _COLUMNS:
                texts[name] = text_of(self._strings, text) if text else str(number)
            elif not text:
                self.table.dropped["numeric_labels"] += 1
        return texts

    def _labels(self, texts: Sequence[tuple[int, int]]) -> Labels:
        """Returns the labels of a sample's series: those of the profile, and its own texts, by their keys."""
        own = [(text_of(self._strings, name), text_of(self._strings, text)) for name, text in texts]
        return to_labels([*self._of_profile, *own], self.table.dropped) if own else self._of_profile


def _number(texts: dict[str, str], names: Sequence[str]) -> int:
    """Returns the process or thread ID that one of the labels has, else 0."""
    text = next((texts[name] for name in names if name in texts), "")
    return int(text) if text.isdecimal() and len(text) <= 10 else 0
