"""Samples as OTLP profiles (opentelemetry-proto 1.10, package profiles.v1development), by the semantic conventions."""

import itertools
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.profiles.v1development.profiles_pb2 import (
    Function,
    KeyValueAndUnit,
    Line,
    Link,
    Location,
    Mapping,
    Profile,
    ProfilesData,
    ProfilesDictionary,
    Sample,
    Stack,
    ValueType,
)

from api.queries.stacks.single_samples import SingleSamples
from api.tree.call_tree import ROOT
from api.tree.frame_functions import UNNAMED
from api.tree.functions import NOT_CODE, UNRESOLVED
from api.tree.functions import Function as KnownFunction
from api.tree.mappings import Mapping as KnownMapping
from api.tree.stack_cache import AddressStacks
from icestream.labels.otlp_labels import ATTRIBUTES
from icestream.symbols.build_ids import without_code
from icestream.version import VERSION

MEDIA_TYPE = "application/x-protobuf"

_CPU = ("cpu", "nanoseconds")
_COUNT = ("samples", "count")
_OF_PROFILE = ("thread_name",)
"""Labels that say nothing of the resource."""
_FRAME_TYPES = {"python": "cpython"} | {
    name: name for name in ("beam", "dotnet", "go", "jvm", "luajit", "perl", "php", "ruby", "rust", "v8js")
}
"""profile.frame.type by what is in brackets as the file of a mapping."""
_MILLI_NS = 10**6

T = TypeVar("T", bound=Hashable)
Attribute = tuple[str, str | int]
FunctionKey = tuple[str, str, int]  # name, file, start line


def otlp(samples: SingleSamples, stacks: AddressStacks, stack_ids: np.ndarray, profile_type: str) -> ProfilesData:
    """Returns the samples, with what they refer to. `stack_ids`: those that `stacks` has, ascending.

    CPU is observations of a period each, as the OpenTelemetry eBPF profiler sends it, so both its values and its counts
    stay what they are. Other samples are one observation of their value each.
    """
    writer = _Writer(stacks, stack_ids)
    data = ProfilesData()
    stack_rows = (np.searchsorted(stack_ids, samples.stack_ids)).tolist()
    values, counts, series = samples.values.tolist(), samples.counts.tolist(), samples.series_ids.tolist()
    is_cpu = tuple(profile_type.split(":")[1:3]) == _CPU

    def period(row: int) -> int:
        """Returns what each observation stands for, or 0."""
        exact = is_cpu and counts[row] > 0 and values[row] % counts[row] == 0
        return int(values[row] // counts[row]) if exact else 0

    rows = range(len(series))
    for (series_id, host_id), of_resource in itertools.groupby(rows, lambda r: (series[r], samples.host_ids[r])):
        labels = samples.labels[series_id]
        resource = data.resource_profiles.add()
        resource.resource.attributes.extend(_resource(labels, host_id))
        scope = resource.scope_profiles.add()
        scope.scope.name, scope.scope.version = "icestream", VERSION
        for of_period, of_profile in itertools.groupby(sorted(of_resource, key=period), period):
            profile = scope.profiles.add()
            writer.describe(profile, profile_type, of_period, labels)
            chosen = list(of_profile)
            times = [samples.times_unix_milli[row] * _MILLI_NS for row in chosen]
            profile.time_unix_nano = min(times)
            profile.duration_nano = max(times) - min(times) + _MILLI_NS

            def place(row: int) -> tuple[Any, ...]:
                own = (samples.pids[row], samples.tids[row], stack_rows[row])
                return (*own, samples.trace_ids[row], samples.span_ids[row])

            for (pid, tid, stack_row, trace_id, span_id), same in itertools.groupby(chosen, place):
                sample = writer.sample(profile, pid, tid, stack_row, trace_id, span_id)
                for row in same:
                    sample.values.append(counts[row] if of_period else values[row])
                    sample.timestamps_unix_nano.append(samples.times_unix_milli[row] * _MILLI_NS)
    data.dictionary.CopyFrom(writer.dictionary())
    return data


def _resource(labels: dict[str, str], host_id: str) -> Iterable[KeyValue]:
    pairs = {ATTRIBUTES.get(name, name): value for name, value in labels.items() if name not in _OF_PROFILE}
    pairs |= {"host.id": host_id} if host_id else {}
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in pairs.items()]


class _Table(dict[T, int]):
    """Distinct entries with their rows; the first is the zero value."""

    def __init__(self, zero: T) -> None:
        super().__init__({zero: 0})

    def row(self, entry: T) -> int:
        return self.setdefault(entry, len(self))


class _Writer:
    """Makes the dictionary while profiles refer to it. Rows of locations are their numbers in `stacks`."""

    def __init__(self, stacks: AddressStacks, stack_ids: np.ndarray) -> None:
        self._stacks = stacks
        self._stack_ids = stack_ids
        self._strings = _Table("")
        self._attributes = _Table[Attribute](("", ""))
        self._links = _Table((bytes(16), bytes(8)))
        self._functions = _Table[FunctionKey](("", "", 0))
        self._stack_rows = _Table[int](-1)  # rows of `stack_ids`

    def describe(self, profile: Profile, profile_type: str, period: int, labels: dict[str, str]) -> None:
        """Writes the types of a profile, and its attributes. `period` of 0: samples have values."""
        _, *types = profile_type.split(":")[:5]
        profile.sample_type.CopyFrom(self._type(*(_COUNT if period else types[:2])))
        profile.period_type.CopyFrom(self._type(*types[2:]))
        profile.period = period
        own = [(ATTRIBUTES[name], labels[name]) for name in _OF_PROFILE if labels.get(name)]
        profile.attribute_indices.extend(map(self._attributes.row, own))

    def sample(self, profile: Profile, pid: int, tid: int, stack_row: int, trace: bytes, span: bytes) -> Sample:
        """Adds a sample without values."""
        own: list[Attribute] = [("process.pid", pid), ("thread.id", tid)]
        has_stack = bool(self._stack_ids[stack_row])
        return profile.samples.add(
            stack_index=self._stack_rows.row(stack_row) if has_stack else 0,
            attribute_indices=[self._attributes.row(pair) for pair in own if pair[1]],
            link_index=self._links.row((trace, span)) if any(trace) else 0,  # a link without a trace is none
        )

    def dictionary(self) -> ProfilesDictionary:
        made = ProfilesDictionary()
        made.mapping_table.append(Mapping())
        made.location_table.append(Location())
        self._add_locations(made)
        self._add_stacks(made)
        links = itertools.islice(self._links, 1, None)
        made.link_table.extend([Link(), *(Link(trace_id=trace, span_id=span) for trace, span in links)])
        made.function_table.extend(
            Function(
                name_strindex=self._strings.row(name), filename_strindex=self._strings.row(file), start_line=start_line
            )
            for name, file, start_line in self._functions
        )
        made.attribute_table.extend(map(self._attribute, self._attributes))
        made.string_table.extend(self._strings)
        return made

    def _add_locations(self, made: ProfilesDictionary) -> None:
        stacks = self._stacks
        mapping_rows: dict[int, int] = {}
        names = ("location", "mapping", "address", "first_frame", "frame_count")
        columns = (getattr(stacks, name).tolist() for name in names)
        for row, mapping_row, address, frame, count in zip(*columns, strict=True):
            location = made.location_table.add(address=address)
            if mapping_row < 0:
                location.lines.append(self._line(stacks.functions.unnamed(row)))
                continue
            mapping = stacks.mappings[mapping_row]
            if mapping_row not in mapping_rows:
                mapping_rows[mapping_row] = len(made.mapping_table)
                made.mapping_table.append(self._mapping(mapping))
            location.mapping_index = mapping_rows[mapping_row]
            if kind := _frame_type(mapping):
                location.attribute_indices.append(self._attributes.row(("profile.frame.type", kind)))
            for at in range(frame, frame + count):
                function_row = int(stacks.frame_function[at])
                # A reader that has the file may name it. Addresses of a kernel mean nothing elsewhere.
                if function_row < UNNAMED or mapping.function_kind == "kernel":
                    line, start_line = int(stacks.frame_line[at]), int(stacks.frame_start_line[at])
                    location.lines.append(self._line(stacks.functions[function_row], line, start_line))

    def _add_stacks(self, made: ProfilesDictionary) -> None:
        made.stack_table.append(Stack())
        paths = self._stacks.paths(0, len(self._stack_ids))
        unresolved = 0
        for row in itertools.islice(self._stack_rows, 1, None):
            if self._stacks.leaves[row] == ROOT and not unresolved:
                unresolved = len(made.location_table)
                made.location_table.add(lines=[self._line(NOT_CODE[UNRESOLVED])])
            made.stack_table.add(location_indices=paths[row] or [unresolved])

    def _mapping(self, mapping: KnownMapping) -> Mapping:
        """Its addresses are those of the file, so it starts at 0."""
        kind, _, text = without_code(mapping.build_id)[0].partition(":")
        own = [(f"process.executable.build_id.{kind}", text)] if text else []
        return Mapping(
            filename_strindex=self._strings.row(mapping.file), attribute_indices=map(self._attributes.row, own)
        )

    def _line(self, function: KnownFunction, line: int = 0, start_line: int = 0) -> Line:
        return Line(function_index=self._functions.row((function.name, function.file, start_line)), line=line)

    def _type(self, kind: str, unit: str) -> ValueType:
        return ValueType(type_strindex=self._strings.row(kind), unit_strindex=self._strings.row(unit))

    def _attribute(self, pair: Attribute) -> KeyValueAndUnit:
        key, value = pair
        if not key:
            return KeyValueAndUnit()
        given = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        return KeyValueAndUnit(key_strindex=self._strings.row(key), value=given)


def _frame_type(mapping: KnownMapping) -> str:
    """Returns profile.frame.type, or "" where the conventions have none."""
    if mapping.function_kind == "kernel":
        return "kernel"
    file = mapping.file
    if file.startswith("["):
        return _FRAME_TYPES.get(file.strip("[]"), "")
    return "native" if mapping.build_id else ""
