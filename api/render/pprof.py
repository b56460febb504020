"""Profiles in the pprof format (schemas/icestream/pprof/profile.proto), from addresses: mappings, build IDs, lines."""

import gzip
from collections.abc import Mapping as Labels

import numpy as np

from api.queries.selection import TimeRange
from api.queries.stack_values import StackValues
from api.tree.functions import NO_STACK, NOT_CODE, UNRESOLVED, Function
from api.tree.stack_cache import AddressStacks
from icestream.pprof.profile_pb2 import Profile

MEDIA_TYPE = "application/octet-stream"
FILE_NAME = "icestream.pb.gz"


def pprof(
    values: StackValues,
    stacks: AddressStacks,
    profile_type: str,
    time_range: TimeRange | None,
    labels: Labels[str, str],
) -> bytes:
    """Gzipped. Every sample gets `labels`, and two values: its count, and its value in the profile type's unit."""
    builder = _Builder(stacks)
    profile = builder.profile
    _, sample_type, sample_unit, period_type, period_unit = profile_type.split(":")[:5]
    for type_name, unit in (("samples", "count"), (sample_type, sample_unit)):
        profile.sample_type.add(type=builder.string(type_name), unit=builder.string(unit))
    profile.default_sample_type = builder.string(sample_type)
    profile.period_type.type, profile.period_type.unit = builder.string(period_type), builder.string(period_unit)
    profile.period = values.total // values.samples if values.samples > 0 else 0
    if time_range is not None:
        profile.time_nanos = time_range.start_unix_nano
        profile.duration_nanos = time_range.end_unix_nano - time_range.start_unix_nano
    label_strings = [(builder.string(key), builder.string(value)) for key, value in labels.items()]
    bounds = stacks.start.tolist()
    location_ids = np.array([builder.location(row) for row in range(len(stacks.location))], np.int64)
    path = location_ids[stacks.path].tolist()
    columns = zip(values.stack_ids.tolist(), values.counts.tolist(), values.values.tolist(), strict=True)
    for i, (stack_id, count, value) in enumerate(columns):
        locations = path[bounds[i] : bounds[i + 1]]
        if not locations:
            locations = [builder.location_not_code(NOT_CODE[UNRESOLVED if stack_id else NO_STACK])]
        sample = profile.sample.add(location_id=locations, value=(count, value))
        for key, text in label_strings:
            sample.label.add(key=key, str=text)
    return gzip.compress(builder.finish(), compresslevel=4)


class _Builder:
    """Adds each thing to the profile once. IDs are row + 1; strings are rows of the string table."""

    def __init__(self, stacks: AddressStacks) -> None:
        self.profile = Profile()
        self._stacks = stacks
        self._strings = {"": 0}
        self._locations: dict[int | str, int] = {}
        self._mappings: dict[int, int] = {}
        self._functions: dict[int | str, int] = {}

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def location_not_code(self, function: Function) -> int:
        """The ID of the location of a frame that is not code."""
        location_id = self._locations.get(function.name)
        if location_id is None:
            location_id = self._locations[function.name] = len(self._locations) + 1
            location = self.profile.location.add(id=location_id)
            location.line.add(function_id=self._function(function.name, function))
        return location_id

    def location(self, row: int) -> int:
        """The ID of a location, by its index into the location columns of the stacks."""
        location_id = self._locations.get(row)
        if location_id is None:
            location_id = self._locations[row] = len(self._locations) + 1
            self._add_location(location_id, row)
        return location_id

    def _add_location(self, location_id: int, row: int) -> None:
        stacks = self._stacks
        mapping_row = int(stacks.mapping[row])
        address = int(stacks.address[row])
        location = self.profile.location.add(id=location_id, address=address)
        if mapping_row < 0:
            function = stacks.functions.unnamed(int(stacks.location[row]))
            location.line.add(function_id=self._function(f"location {row}", function))
            return
        location.mapping_id = self._mapping(mapping_row, address)
        first_frame = int(stacks.first_frame[row])
        for frame in range(first_frame, first_frame + int(stacks.frame_count[row])):
            function_row = int(stacks.frame_function[frame])
            function_id = self._function(function_row, stacks.functions[function_row])
            location.line.add(function_id=function_id, line=int(stacks.frame_line[frame]))

    def _mapping(self, row: int, address: int) -> int:
        """Addresses are those of the file, so every mapping starts at 0, and ends after its highest address.

        All mappings are said to have functions: for others, pprof would ask this server for names, at /symbolz, or look
        them up in files of the machine that it runs on.
        """
        mapping_id = self._mappings.get(row)
        if mapping_id is None:
            mapping_id = self._mappings[row] = len(self._mappings) + 1
            source = self._stacks.mappings[row]
            build_id = source.build_id.removeprefix("gnu:")
            self.profile.mapping.add(id=mapping_id, filename=self.string(source.file), build_id=self.string(build_id))
            self.profile.mapping[-1].has_functions = True
        mapping = self.profile.mapping[mapping_id - 1]
        mapping.memory_limit = max(mapping.memory_limit, min(address + 1, 2**64 - 1))
        return mapping_id

    def _function(self, key: int | str, function: Function) -> int:
        function_id = self._functions.get(key)
        if function_id is None:
            function_id = self._functions[key] = len(self._functions) + 1
            name = self.string(function.name)
            self.profile.function.add(
                id=function_id,
                name=name,
                system_name=name,
                filename=self.string(function.file),
                start_line=function.line,
            )
        return function_id

    def finish(self) -> bytes:
        self.profile.string_table.extend(self._strings)
        return self.profile.SerializeToString()
