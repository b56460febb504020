"""Profiles in the pprof format (schemas/icestream/pprof/profile.proto), from addresses: mappings, build IDs, lines.

A profile is written in pieces, each a part of the message: protobuf messages that follow each other are one message
with the repeated fields of both.
"""

import zlib
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Labels

import numpy as np

from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import StackValues
from api.tree.call_tree import ROOT
from api.tree.functions import NO_STACK, NOT_CODE, UNRESOLVED, Function
from api.tree.stack_cache import AddressStacks
from icestream.pprof.profile_pb2 import Profile

MEDIA_TYPE = "application/octet-stream"
FILE_NAME = "icestream.pb.gz"

_STACKS = 5_000  # in one piece
_LOCATIONS = 10_000
_GZIP = 31  # zlib's window bits that mean gzip


def pprof(
    values: StackValues,
    stacks: AddressStacks,
    profile_type: str,
    time_range: TimeRange | None,
    labels: Labels[str, str],
) -> Iterator[bytes]:
    """Yields it gzipped. Every sample gets `labels`, and two values: its count, and its value in the profile type's
    unit."""
    return gzipped(pieces(values, stacks, profile_type, time_range, labels))


def gzipped(pieces: Iterable[Profile]) -> Iterator[bytes]:
    """Yields the parts of a message as one gzip file."""
    compressor = zlib.compressobj(4, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        if data := compressor.compress(piece.SerializeToString()):
            yield data
    yield compressor.flush()


def pieces(
    values: StackValues,
    stacks: AddressStacks,
    profile_type: str,
    time_range: TimeRange | None,
    labels: Labels[str, str],
    with_counts: bool = True,
) -> Iterator[Profile]:
    """Yields the parts of the message. Without counts, samples have the value in the profile type's unit only."""
    tables = _Tables(values, stacks)
    yield head(tables.strings, values.total, values.samples, profile_type, time_range, with_counts)
    label_strings = [(tables.strings.add(key), tables.strings.add(value)) for key, value in labels.items()]
    for first in range(0, len(values.stack_ids), _STACKS):
        yield _samples(values, stacks, first, label_strings, with_counts)
    for first in range(0, len(stacks.location), _LOCATIONS):
        yield tables.locations(first, first + _LOCATIONS)
    yield tables.rest()


class Strings(dict[str, int]):
    """The string table: texts with their rows."""

    def __init__(self) -> None:
        super().__init__({"": 0})

    def add(self, text: str) -> int:
        """Returns the row of a text."""
        return self.setdefault(text, len(self))


def head(
    strings: Strings,
    total: int,
    samples: int,
    profile_type: str,
    time_range: TimeRange | None,
    with_counts: bool = True,
) -> Profile:
    """What the profile is of. `total`: the sum of its values in the profile type's unit; `samples`: of its counts."""
    head = Profile()
    _, sample_type, sample_unit, period_type, period_unit = profile_type.split(":")[:5]
    counts = [("samples", "count")] if with_counts else []
    for type_name, unit in (*counts, (sample_type, sample_unit)):
        head.sample_type.add(type=strings.add(type_name), unit=strings.add(unit))
    head.default_sample_type = strings.add(sample_type)
    head.period_type.type, head.period_type.unit = strings.add(period_type), strings.add(period_unit)
    head.period = total // samples if samples > 0 else 0
    if time_range is not None:
        head.time_nanos = time_range.start_unix_nano
        head.duration_nanos = time_range.end_unix_nano - time_range.start_unix_nano
    return head


def _samples(
    values: StackValues, stacks: AddressStacks, first: int, label_strings: list[tuple[int, int]], with_counts: bool
) -> Profile:
    """One sample for each of the stacks from `first` on."""
    piece = Profile()
    part = slice(first, first + _STACKS)
    columns = (values.stack_ids[part].tolist(), values.counts[part].tolist(), values.values[part].tolist())
    paths = stacks.paths(first, first + _STACKS)
    for path, stack_id, count, value in zip(paths, *columns, strict=True):
        sample_values = (count, value) if with_counts else (value,)
        sample = piece.sample.add(location_id=path or [_not_code_id(stacks, stack_id)], value=sample_values)
        for key, text in label_strings:
            sample.label.add(key=key, str=text)
    return piece


def _not_code_id(stacks: AddressStacks, stack_id: int) -> int:
    """The ID of the location of a stack that has no path: behind those of all others."""
    return len(stacks.location) + (2 if stack_id else 1)


class _Tables:
    """What samples refer to. The ID of a location is its number, those of mappings and functions are given in the order
    in which they come; strings are rows of the string table."""

    def __init__(self, values: StackValues, stacks: AddressStacks) -> None:
        self._values = values
        self._stacks = stacks
        self._mapping_rows = np.unique(stacks.mapping[stacks.mapping >= 0])
        self._mapping_ids = {row: number for number, row in enumerate(self._mapping_rows.tolist(), 1)}
        self.strings = Strings()
        self._functions: dict[tuple[int | str, int], int] = {}  # by row and first line, which each build has of its own
        self._rest = Profile()

    def locations(self, first: int, end: int) -> Profile:
        """Locations by their indexes into the location columns."""
        stacks, piece = self._stacks, Profile()
        names = ("location", "mapping", "address", "first_frame", "frame_count")
        columns = (getattr(stacks, name)[first:end].tolist() for name in names)
        for number, (row, mapping, address, frame, count) in enumerate(zip(*columns, strict=True), first + 1):
            location = piece.location.add(id=number, address=address)
            if mapping < 0:
                function = stacks.functions.unnamed(row)
                location.line.add(function_id=self._function((f"location {row}", 0), function))
                continue
            location.mapping_id = self._mapping_ids[mapping]
            for at in range(frame, frame + count):
                key = int(stacks.frame_function[at]), int(stacks.frame_start_line[at])
                function_id = self._functions.get(key)
                if function_id is None:
                    function_id = self._function(key, stacks.functions[key[0]])
                location.line.add(function_id=function_id, line=int(stacks.frame_line[at]))
        return piece

    def rest(self) -> Profile:
        """Functions, mappings, strings, and the locations of frames that are not code."""
        rest = self._rest
        without_path = self._values.stack_ids[self._stacks.leaves == ROOT]
        for frame, stack_ids in ((NO_STACK, without_path == 0), (UNRESOLVED, without_path != 0)):
            if stack_ids.any():
                function = NOT_CODE[frame]
                location = rest.location.add(id=_not_code_id(self._stacks, int(frame == UNRESOLVED)))
                location.line.add(function_id=self._function((function.name, 0), function))
        self._add_mappings()
        rest.string_table.extend(self.strings)
        return rest

    def _function(self, key: tuple[int | str, int], function: Function) -> int:
        function_id = self._functions.get(key)
        if function_id is None:
            function_id = self._functions[key] = len(self._functions) + 1
            name = self.strings.add(function.name)
            self._rest.function.add(
                id=function_id,
                name=name,
                system_name=name,
                filename=self.strings.add(function.file),
                start_line=key[1],
            )
        return function_id

    def _add_mappings(self) -> None:
        """Addresses are those of the file, so every mapping starts at 0, and ends after its highest address.

        All mappings are said to have functions: for others, pprof would ask this server for names, at /symbolz, or look
        them up in files of the machine that it runs on.
        """
        covered = self._stacks.mapping >= 0
        highest = np.zeros(len(self._mapping_rows), np.uint64)
        index = np.searchsorted(self._mapping_rows, self._stacks.mapping[covered])
        np.maximum.at(highest, index, self._stacks.address[covered])
        for (row, number), address in zip(self._mapping_ids.items(), highest.tolist(), strict=True):
            source = self._stacks.mappings[row]
            self._rest.mapping.add(
                id=number,
                memory_limit=min(address + 1, 2**64 - 1),
                filename=self.strings.add(source.file),
                build_id=self.strings.add(source.build_id.removeprefix("gnu:")),
                has_functions=True,
            )
