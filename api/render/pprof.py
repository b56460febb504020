"""Profiles in the pprof format (schemas/icestream/pprof/profile.proto), from addresses: mappings, build IDs, lines."""

import gzip
from collections.abc import Mapping as Labels

from api.queries.stack_values import StackValues
from api.queries.time_range import TimeRange
from api.tree.functions import NO_STACK, OWN, UNRESOLVED, Function
from api.tree.stack_cache import Addresses
from icestream.pprof.profile_pb2 import Profile

MEDIA_TYPE = "application/octet-stream"
FILE_NAME = "icestream.pb.gz"


def pprof(
    values: StackValues, stacks: Addresses, profile_type: str, time: TimeRange | None, labels: Labels[str, str]
) -> bytes:
    """Gzipped. `labels` are put on every sample. The values of a sample are its count and its value in the unit."""
    builder = _Builder(stacks)
    profile = builder.profile
    _, sample_type, sample_unit, period_type, period_unit = profile_type.split(":")[:5]
    for kind, unit in (("samples", "count"), (sample_type, sample_unit)):
        profile.sample_type.add(type=builder.string(kind), unit=builder.string(unit))
    profile.default_sample_type = builder.string(sample_type)
    profile.period_type.type, profile.period_type.unit = builder.string(period_type), builder.string(period_unit)
    profile.period = values.total // values.samples if values.samples > 0 else 0
    if time is not None:
        profile.time_nanos = time.start_unix_nano
        profile.duration_nanos = time.end_unix_nano - time.start_unix_nano
    label = [(builder.string(key), builder.string(value)) for key, value in labels.items()]
    bounds = stacks.start.tolist()
    path = [builder.location(row) for row in stacks.path.tolist()]
    rows = zip(values.stack_ids.tolist(), values.counts.tolist(), values.values.tolist(), strict=True)
    for i, (stack_id, count, value) in enumerate(rows):
        locations = path[bounds[i] : bounds[i + 1]] or [builder.own(OWN[UNRESOLVED if stack_id else NO_STACK])]
        sample = profile.sample.add(location_id=locations, value=(count, value))
        for key, text in label:
            sample.label.add(key=key, str=text)
    return gzip.compress(builder.finish(), compresslevel=4)


class _Builder:
    """IDs are row + 1; strings are rows."""

    def __init__(self, stacks: Addresses) -> None:
        self.profile = Profile()
        self._stacks = stacks
        self._strings = {"": 0}
        self._locations: dict[int | str, int] = {}
        self._mappings: dict[int, int] = {}
        self._functions: dict[int | str, int] = {}

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def own(self, function: Function) -> int:
        """The location of a frame that is not code."""
        known = self._locations.get(function.name)
        if known is None:
            known = self._locations[function.name] = len(self._locations) + 1
            location = self.profile.location.add(id=known)
            location.line.add(function_id=self._function(function.name, function))
        return known

    def location(self, row: int) -> int:
        known = self._locations.get(row)
        if known is None:
            known = self._locations[row] = len(self._locations) + 1
            self._add_location(known, row)
        return known

    def _add_location(self, number: int, row: int) -> None:
        stacks = self._stacks
        mapping = int(stacks.mapping[row])
        address = int(stacks.address[row])
        location = self.profile.location.add(id=number, address=address)
        if mapping < 0:
            location.line.add(function_id=self._function(f"row {row}", stacks.functions.unnamed(int(stacks.rows[row]))))
            return
        location.mapping_id = self._mapping(mapping, address)
        first = int(stacks.first[row])
        for at in range(first, first + int(stacks.many[row])):
            function = int(stacks.frame_function[at])
            line = int(stacks.frame_line[at])
            location.line.add(function_id=self._function(function, stacks.functions[function]), line=line)
        if location.line:
            self.profile.mapping[location.mapping_id - 1].has_functions = True

    def _mapping(self, row: int, address: int) -> int:
        """Addresses are those of the file, so every mapping starts at 0 here, and is as long as its addresses say."""
        known = self._mappings.get(row)
        if known is None:
            known = self._mappings[row] = len(self._mappings) + 1
            about = self._stacks.functions.mappings[row]
            build_id = about.build_id.removeprefix("gnu:")
            self.profile.mapping.add(id=known, filename=self.string(about.file), build_id=self.string(build_id))
        mapping = self.profile.mapping[known - 1]
        mapping.memory_limit = max(mapping.memory_limit, min(address + 1, 2**64 - 1))
        return known

    def _function(self, key: int | str, function: Function) -> int:
        known = self._functions.get(key)
        if known is None:
            known = self._functions[key] = len(self._functions) + 1
            name = self.string(function.name)
            self.profile.function.add(
                id=known, name=name, system_name=name, filename=self.string(function.file), start_line=function.line
            )
        return known

    def finish(self) -> bytes:
        self.profile.string_table.extend(self._strings)
        return self.profile.SerializeToString()
