"""Reads OTLP profiles (opentelemetry-proto 1.10, package profiles.v1development)."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from google.protobuf.message import DecodeError
from opentelemetry.proto.profiles.v1development.profiles_pb2 import (
    Location,
    Profile,
    ProfilesData,
    ProfilesDictionary,
    Sample,
)
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ValueType as ProtoValueType

from gateway.errors import Refused, bad_profile, too_many
from gateway.labels import host_id
from gateway.profile_types import COUNT, CPU, ValueType, cpu_time, observations, profile_type, value_type
from gateway.readers import valid_texts
from gateway.readers.location_table import LocationTable, SentLine, file_address, sent_line
from gateway.readers.otlp_attributes import NO_LABELS, Attributes, attributes, attributes_at, labels_of, string_at
from gateway.readers.otlp_version import all_profiles, check_version
from gateway.readers.stack_table import SampleLists, StackTable
from gateway.sent_profile import MAX_PROFILES, SentProfile, SentProfiles, Values
from icestream.messages.checks import MAX_ID, MAX_LINES, Labels

_BUILD_IDS = ("gnu", "go", "htlhash")
"""Kinds of build IDs, best first: attributes process.executable.build_id.KIND."""
_FRAME_FILES = {"kernel": "[kernel]", "cpython": "[python]", "native": "", "": ""}
"""The file of named locations by profile.frame.type, as collectors call it; others are called by their type."""
_MOST_ATTRIBUTES = 2_000_000
"""The most attributes of all profiles of a request, their resources and scopes: each takes microseconds to read."""
_OBSERVATION_BYTES = 250
_ID_BYTES = 16
_OFF_CPU = ValueType("off_cpu", "nanoseconds")


@dataclass(frozen=True)
class Arrival:
    """When and where a request was stored: profiles that do not say when they were taken end at that time."""

    unix_nano: int
    identity: bytes
    """What no other request has, and this one each time that it is read."""


def parse_profiles(data: bytes) -> ProfilesData:
    """Raises Refused."""
    try:
        return valid_texts.parse(ProfilesData, data)
    except DecodeError as error:
        raise bad_profile(f"no OTLP profiles: {error}") from None


def read_otlp(
    data: ProfilesData, max_series: int, arrival: Arrival | None = None, labels: Attributes | None = None,
    hold: Callable[[int], None] = lambda size: None,
) -> SentProfiles:  # fmt: skip
    """Reads profiles. `labels` are attributes of each resource, and replace those of the same name. `hold`: see
    Reading. Raises Refused where all profiles are of another version, or where they are too many.
    Discards what of the data is unknown, and counts it."""
    number, attributes_read = itertools.count(), 0
    hold(_OBSERVATION_BYTES * _observations(data))
    check_version(data)
    found = SentProfiles()
    dictionary = data.dictionary
    tables = _Tables(dictionary, list(dictionary.string_table), xxhash.xxh3_128_digest(dictionary.SerializeToString()))
    for resource in data.resource_profiles:
        for scope in resource.scope_profiles:
            if not scope.profiles:
                continue
            dropped = Counter[str]()  # of what these profiles share: told with the first one
            try:
                given = attributes(resource.resource.attributes, tables.strings, dropped)
                given |= labels or {}
                given |= attributes(scope.scope.attributes, tables.strings, dropped)
            except Refused as error:
                found.refused.extend([error.message] * len(scope.profiles))
                continue
            origin = xxhash.xxh3_128_digest(repr(sorted(given.items())).encode())
            for profile in scope.profiles:
                attributes_read += len(given) + len(profile.attribute_indices)
                if attributes_read > _MOST_ATTRIBUTES:
                    raise too_many(_MOST_ATTRIBUTES, "attributes of all profiles together")
                own = arrival and Arrival(arrival.unix_nano, b"%s/%d" % (arrival.identity, next(number)))
                try:
                    sent = _Reader(profile, tables, given, max_series).read(origin, own)
                    sent.dropped.update(dropped)
                    dropped.clear()
                    found.profiles.append(sent)
                except Refused as error:
                    found.refused.append(error.message)
    if found.profiles and (unknown := _discard_unknown(data)):
        found.profiles[0].dropped["unknown_bytes"] += unknown
    return found


def _discard_unknown(data: ProfilesData) -> int:
    """Returns how many bytes the fields of newer versions had, such as payloads."""
    size = data.ByteSize()
    data.DiscardUnknownFields()
    return size - data.ByteSize()


def _observations(data: ProfilesData) -> int:
    """Returns how many observations all samples have. Raises Refused where there are too many profiles."""
    profiles = all_profiles(data)
    if len(profiles) > MAX_PROFILES:
        raise too_many(MAX_PROFILES, f"profiles, got {len(profiles)}")
    return sum(max(len(one.values), len(one.timestamps_unix_nano)) for profile in profiles for one in profile.samples)


@dataclass(frozen=True)
class _Tables:
    """What the profiles of a request share."""

    dictionary: ProfilesDictionary
    strings: Sequence[str]
    digest: bytes  # of the dictionary


class _Reader:
    """Reads one profile."""

    def __init__(self, profile: Profile, tables: _Tables, given: Attributes, max_series: int) -> None:
        self._profile = profile
        self._tables = tables
        self._dictionary = tables.dictionary
        self._strings = tables.strings
        self._table = StackTable(max_series)
        dropped = self._table.dropped
        own = attributes_at(profile.attribute_indices, self._dictionary.attribute_table, self._strings, dropped)
        self._given = {**given, **own}
        self._labels = labels_of(self._given, dropped)
        self._location_table = LocationTable()
        self._locations: dict[int, int] = {}
        self._stacks: dict[int, int] = {}
        self._of_attributes: dict[tuple[int, ...], tuple[int, int]] = {}
        self._files: dict[int, tuple[str, str]] = {}

    def read(self, origin: bytes, arrival: Arrival | None) -> SentProfile:
        """`origin` names the attributes of resource and scope, some of which are no labels. Raises Refused."""
        profile = self._profile
        start = profile.time_unix_nano or min(
            (min(sample.timestamps_unix_nano) for sample in profile.samples if sample.timestamps_unix_nano), default=0
        )
        identity = self._identity(origin) if start > 0 else arrival.identity if arrival else b""
        start = start or (arrival.unix_nano if arrival else time.time_ns()) - profile.duration_nano
        rows, values = SampleLists(), []
        for sample in profile.samples:
            values += self._add(sample, start, rows)
        times = rows.time_unix_nano or [start]
        end = max(start + profile.duration_nano, max(times) + 1)
        stacks = self._table.stacks(self._location_table.all())
        window = self._table.window(min(start, *times), end, rows.columns(), stacks)
        if profile.dropped_attributes_count:
            self._table.dropped["attributes"] += profile.dropped_attributes_count
        return SentProfile(
            window=window,
            values=[self._values(np.array(values, np.int64))],
            host_id=self._host_id(),
            identity=identity,
            dropped=Counter(self._table.dropped),
        )

    def _identity(self, origin: bytes) -> bytes:
        """Returns its bytes with its profile ID, or with the digest of the dictionary that its indices refer to."""
        own = self._profile.profile_id
        is_valid = len(own) == _ID_BYTES and any(own)  # as the specification says
        return origin + self._profile.SerializeToString() + (own if is_valid else self._tables.digest)

    def _host_id(self) -> str:
        given = self._given.get("host.id") or host_id(self._labels)
        return given.encode()[:MAX_ID].decode(errors="ignore")

    def _add(self, sample: Sample, start: int, rows: SampleLists) -> list[int]:
        """Adds the observations of a sample; returns their values."""
        times, values = list(sample.timestamps_unix_nano), list(sample.values)
        if times and not values:
            values = [1] * len(times)
        elif values and not times:
            if len(values) > 1:
                raise bad_profile(f"samples.values: expected one value without timestamps, got {len(values)}")
            times = [start]
        elif len(times) != len(values) or not times:
            raise bad_profile(
                f"samples.values: expected none, or as many as there are timestamps ({len(times)}), got {len(values)}"
            )
        indices = tuple(sample.attribute_indices)
        pid, tid = self._process(indices)
        series = self._table.series_of_sample(indices, lambda: self._labels_at(indices), self._labels)
        stack, context = self._stack(sample.stack_index), self._context(sample.link_index)
        for moment in times:
            rows.add(moment, series, pid, tid, stack, context)
        return values

    def _process(self, indices: tuple[int, ...]) -> tuple[int, int]:
        """Returns process and thread of a sample with these attributes; 0 where they are not known."""
        known = self._of_attributes.get(indices)
        if known is None:
            if len(set(indices)) < len(indices):
                raise bad_profile("samples.attribute_indices: expected each index once")
            own = attributes_at(indices, self._dictionary.attribute_table, self._strings, self._table.dropped)
            ids = [own.get(name, self._given.get(name, "")) for name in ("process.pid", "thread.id")]
            pid, tid = (int(text) if text.isdecimal() and len(text) <= 10 else 0 for text in ids)
            known = self._of_attributes[indices] = (pid, tid)
        return known

    def _labels_at(self, indices: tuple[int, ...]) -> Labels:
        """Returns the labels of a sample with these attributes."""
        own = attributes_at(indices, self._dictionary.attribute_table, self._strings)
        if set(own) <= NO_LABELS:
            return self._labels
        return labels_of({**self._given, **own}, self._table.dropped)

    def _context(self, index: int) -> int:
        links = self._dictionary.link_table
        if not index:
            return 0
        if not 0 <= index < len(links):
            raise bad_profile(f"samples.link_index: expected indices below {len(links)}, got {index}")
        return self._table.context(links[index].trace_id, links[index].span_id)

    def _stack(self, index: int) -> int:
        row = self._stacks.get(index)
        if row is None:
            table = self._dictionary.stack_table
            if not 0 <= index < max(len(table), 1):
                raise bad_profile(f"samples.stack_index: expected indices below {len(table)}, got {index}")
            locations = table[index].location_indices if table else []
            row = self._stacks[index] = self._table.stack(tuple([self._location(location) for location in locations]))
        return row

    def _location(self, index: int) -> int:
        row = self._locations.get(index)
        if row is None:
            table = self._dictionary.location_table
            if not 0 <= index < len(table):
                raise bad_profile(f"stack_table.location_indices: expected indices below {len(table)}, got {index}")
            row = self._locations[index] = self._read_location(table[index])
        return row

    def _read_location(self, location: Location) -> int:
        mappings = self._dictionary.mapping_table
        address, build_id, file = location.address, "", ""
        if location.mapping_index:
            if not 0 <= location.mapping_index < len(mappings):
                raise bad_profile(f"location_table.mapping_index: there is no mapping {location.mapping_index}")
            mapping = mappings[location.mapping_index]
            file, build_id = self._file(location.mapping_index)
            address = file_address(address, mapping.memory_start, mapping.file_offset)
        own = attributes_at(location.attribute_indices, self._dictionary.attribute_table, self._strings)
        kind = own.get("profile.frame.type", "")
        lines = [self._line(line.function_index, line.line) for line in location.lines]
        if len(lines) > MAX_LINES:
            self._table.dropped["lines"] += len(lines) - MAX_LINES
        if kind == "kernel" or (any(line.function for line in lines) and not build_id):
            file = _FRAME_FILES.get(kind, f"[{kind}]") or file
        return self._location_table.location(build_id, file, address, lines)

    def _line(self, function_index: int, line: int) -> SentLine:
        functions = self._dictionary.function_table
        if not 0 <= function_index < len(functions):
            raise bad_profile(f"lines.function_index: there is no function {function_index}")
        function = functions[function_index]
        name = string_at(self._strings, function.name_strindex)
        name = name or string_at(self._strings, function.system_name_strindex)
        file = string_at(self._strings, function.filename_strindex)
        return sent_line(name, file, line, function.start_line, self._table.dropped)

    def _file(self, mapping_index: int) -> tuple[str, str]:
        """Returns the file of a mapping, and its build ID."""
        known = self._files.get(mapping_index)
        if known is None:
            mapping = self._dictionary.mapping_table[mapping_index]
            file = string_at(self._strings, mapping.filename_strindex)
            known = self._files[mapping_index] = (file, self._build_id(mapping.attribute_indices))
        return known

    def _build_id(self, indices: Sequence[int]) -> str:
        own = attributes_at(indices, self._dictionary.attribute_table, self._strings)
        ids = ((kind, own.get(f"process.executable.build_id.{kind}", "")) for kind in _BUILD_IDS)
        return next((f"{kind}:{text.lower() if kind == 'gnu' else text}" for kind, text in ids if text), "")

    def _values(self, values: np.ndarray) -> Values:
        sample, period_type = self._type(self._profile.sample_type), self._type(self._profile.period_type)
        period = max(self._profile.period, 0)
        if sample == COUNT and period_type == CPU and period:
            return Values(profile_type("", CPU, CPU), period, cpu_time(values, period), values)
        if sample == _OFF_CPU:
            return Values(profile_type("", sample, sample), 1, values)
        count = observations(values, period) if sample == period_type == CPU and period else None
        return Values(profile_type("", sample, period_type), period, values, count)

    def _type(self, given: ProtoValueType) -> ValueType:
        return value_type(string_at(self._strings, given.type_strindex), string_at(self._strings, given.unit_strindex))
