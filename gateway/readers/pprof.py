"""Reads pprof profiles (schemas/icestream/pprof/profile.proto)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from gateway.errors import Refused, bad_profile
from gateway.labels import host_id, to_labels
from gateway.profile_types import COUNT, CPU, ValueType, counted_by, profile_type
from gateway.readers.stack_table import SampleRows, StackTable, build_id, file_address, line_number
from gateway.sent_profile import SentProfile, Values
from icestream.messages.checks import MAX_NAME, Labels
from icestream.messages.raw_encoder import SentLine
from icestream.pprof.profile_pb2 import Mapping, Profile, Sample

MAX_SAMPLE_TYPES = 32
_PIDS = ("pid", "process_id")
_TIDS = ("thread_id", "tid")
_CONTEXT = ("trace_id", "span_id")


@dataclass(frozen=True)
class Source:
    """What a request says of a profile beside the profile."""

    labels: Labels
    name: str = ""  # of the profile type; empty: as the sample types say
    start_unix_nano: int = 0  # 0: as the profile says
    end_unix_nano: int = 0


def read_pprof(data: bytes, source: Source, max_series: int) -> SentProfile:
    """Reads a profile that is not compressed. Raises Refused."""
    try:
        profile = Profile.FromString(data)
    except DecodeError as error:
        raise bad_profile(f"no pprof profile: {error}") from None
    types = _value_types(profile)
    start, end = _times(profile, source)
    reader = _Reader(profile, source.labels, max_series)
    values = reader.read(start, len(types))
    own_time = profile.time_nanos or source.start_unix_nano
    return SentProfile(
        window=reader.table.window(start, end, reader.rows),
        values=_values(profile, types, values, source.name, _period_type(profile)),
        host_id=host_id(source.labels),
        identity=data if own_time else b"",
        dropped=reader.table.dropped,
    )


def _value_types(profile: Profile) -> list[ValueType]:
    if not profile.string_table or profile.string_table[0]:
        raise bad_profile('string_table: expected "" as the first string')
    if not 0 < len(profile.sample_type) <= MAX_SAMPLE_TYPES:
        raise bad_profile(f"sample_type: expected 1 to {MAX_SAMPLE_TYPES}, got {len(profile.sample_type)}")
    return [ValueType(_string(profile, one.type), _string(profile, one.unit)) for one in profile.sample_type]


def _period_type(profile: Profile) -> ValueType:
    return ValueType(_string(profile, profile.period_type.type), _string(profile, profile.period_type.unit))


def _times(profile: Profile, source: Source) -> tuple[int, int]:
    """Returns when the profile begins and ends; it ends now where nobody says when it was taken."""
    duration = max(profile.duration_nanos, 0)
    start = source.start_unix_nano or profile.time_nanos
    if start <= 0:
        start = time.time_ns() - duration
    return start, max(source.end_unix_nano, start + duration, start + 1)


def _values(
    profile: Profile, types: Sequence[ValueType], values: np.ndarray, name: str, period_type: ValueType
) -> list[Values]:
    counts = counted_by(types)
    period = max(0, profile.period)
    if list(types) == [COUNT] and period_type == CPU and period:
        # As perf and OpenTelemetry count CPU: each sample stands for the period.
        if len(values) and int(np.abs(values).max()) > 2**62 // period:
            raise bad_profile("sample.value: expected values that can be multiplied with the period")
        return [Values(profile_type(name, CPU, CPU), period, values[:, 0] * period, values[:, 0])]
    return [
        Values(
            profile_type(name, one, period_type), period, values[:, i], None if counts is None else values[:, counts]
        )
        for i, one in enumerate(types)
        if i != counts
    ]


class _Mapping(NamedTuple):
    build_id: str
    file: str
    memory_start: int
    file_offset: int


_NO_MAPPING = _Mapping("", "", 0, 0)


class _Reader:
    """Reads the samples of one profile."""

    def __init__(self, profile: Profile, labels: Labels, max_series: int) -> None:
        self.table = StackTable(max_series)
        self.rows = SampleRows()
        self._profile = profile
        self._of_profile = labels
        self._strings = list(profile.string_table)
        self._series: dict[tuple[tuple[int, int], ...], Labels] = {}
        self._locations = self._read_locations()

    def read(self, time_unix_nano: int, types: int) -> np.ndarray:
        """Returns the values of all samples: int64 (samples, types)."""
        found: list[int] = []
        row_of = self._locations.__getitem__
        for sample in self._profile.sample:
            if len(sample.value) != types:
                raise bad_profile(f"sample.value: expected {types} values, as there are types, got {len(sample.value)}")
            try:
                stack = tuple(map(row_of, sample.location_id))
            except KeyError as error:
                raise bad_profile(f"sample.location_id: there is no location {error}") from None
            found += sample.value
            self._add(sample, time_unix_nano, self.table.stack(stack))
        return np.array(found, np.int64).reshape(-1, types)

    def _add(self, sample: Sample, time_unix_nano: int, stack: int) -> None:
        pid = tid = context = 0
        series = self._of_profile
        if sample.label:
            texts = self._texts(sample)
            pid, tid = _number(texts, _PIDS), _number(texts, _TIDS)
            context = self.table.context(texts.get("trace_id", ""), texts.get("span_id", ""))
            series = self._labels(sample)
        self.rows.add(time_unix_nano, self.table.series(series, self._of_profile), pid, tid, stack, context)

    def _texts(self, sample: Sample) -> dict[str, str]:
        """Returns the labels that are columns of samples."""
        texts = {}
        for label in sample.label:
            name = self._string(label.key)
            if name in _PIDS or name in _TIDS or name in _CONTEXT:
                texts[name] = self._string(label.str) if label.str else str(label.num)
            elif not label.str:
                self.table.dropped["numeric_labels"] += 1
        return texts

    def _labels(self, sample: Sample) -> Labels:
        """Returns the labels of a sample's series: those of the profile, and its own texts."""
        key = tuple([(label.key, label.str) for label in sample.label if label.str])
        known = self._series.get(key)
        if known is None:
            own = [(self._string(name), self._string(text)) for name, text in key]
            own = [pair for pair in own if pair[0] not in _PIDS + _TIDS + _CONTEXT]
            known = self._series[key] = to_labels([*self._of_profile, *own]) if own else self._of_profile
        return known

    def _read_locations(self) -> dict[int, int]:
        """Returns the row of each location, by its ID."""
        functions = self._read_functions()
        mappings = {mapping.id: self._mapping(mapping) for mapping in self._profile.mapping} | {0: _NO_MAPPING}
        rows = {}
        for location in self._profile.location:
            lines = []
            try:
                for line in location.line[:]:  # a slice is a list, which is read in half the time
                    name, file, start_line = functions[line.function_id]
                    lines.append(SentLine(name, file, line_number(line.line), start_line))
                mapping = mappings[location.mapping_id]
            except KeyError as error:
                raise bad_profile(f"location {location.id}: there is no function or mapping {error}") from None
            address = file_address(location.address, mapping.memory_start, mapping.file_offset)
            rows[location.id] = self.table.location(mapping.build_id, mapping.file, address, lines)
        return rows

    def _read_functions(self) -> dict[int, tuple[str, str, int]]:
        """Returns the name, file and first line of each function, as lines have them, by its ID."""
        texts = {index: text[:MAX_NAME] for index, text in enumerate(self._strings)}
        try:
            return {
                function.id: (
                    texts[function.name] or texts[function.system_name],
                    texts[function.filename],
                    line_number(function.start_line),
                )
                for function in self._profile.function
            }
        except KeyError as error:
            raise _no_string(error, self._strings) from None

    def _mapping(self, mapping: Mapping) -> "_Mapping":
        identity = build_id(self._string(mapping.build_id))
        return _Mapping(identity, self._string(mapping.filename), mapping.memory_start, mapping.file_offset)

    def _string(self, index: int) -> str:
        return _string_of(self._strings, index)


def _number(texts: dict[str, str], names: Sequence[str]) -> int:
    """Returns the process or thread ID that one of the labels has, else 0."""
    text = next((texts[name] for name in names if name in texts), "")
    return int(text) if text.isdecimal() and len(text) <= 10 else 0


def _string(profile: Profile, index: int) -> str:
    return _string_of(profile.string_table, index)


def _string_of(strings: Sequence[str], index: int) -> str:
    if not 0 <= index < len(strings):
        raise _no_string(index, strings)
    return strings[index]


def _no_string(index: object, strings: Sequence[str]) -> Refused:
    return bad_profile(f"string_table: expected indices below {len(strings)}, got {index}")
