"""The distinct locations of a profile, and how what its sender says of code becomes a location."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from icestream.messages.checks import MAX_LINE, MAX_LINES, MAX_NAME
from icestream.messages.raw_encoder import LocationName, SentLines, Stacks
from icestream.v1.common_pb2 import Mapping

KERNEL_FILE = "[kernel]"
NAMED_FILE = "[sent]"
"""The file of locations that have names, and no file."""
LOW_MEMORY = 1 << 32
"""A mapping below this address belongs to a program that is loaded where its file says: addresses are the file's."""

# The protobuf package looks a name of an enum up again each time that it is used.
_FILE, _KERNEL, _NAMED, _SENT = map(int, (Mapping.FILE, Mapping.KERNEL, Mapping.NAMED, Mapping.SENT))
_KERNEL_FILE = re.compile(r"\[(kernel|vmlinux|guest\.kernel)|^vmlinux$")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_U64 = 2**64 - 1


class MappingKey(NamedTuple):
    """A mapping of a profile."""

    kind: int
    build_id: str
    file: str


UNKNOWN = MappingKey(int(Mapping.UNKNOWN), "", "")


class SentLine(NamedTuple):
    """A line of a location, as the sender of a profile gave it."""

    function: str
    file: str
    line: int
    start_line: int  # of the function; 0: not known


NO_NAME = SentLine("", "", 0, 0)


@dataclass(frozen=True)
class ProfileLocations:
    """The l distinct locations of a profile."""

    mapping: np.ndarray  # int64 (l,), row of mappings
    address: np.ndarray  # uint64 (l,)
    name: np.ndarray  # int64 (l,), row of names, 0: it has lines, or nothing
    mappings: Sequence[MappingKey]  # mappings[0] is UNKNOWN
    names: Sequence[LocationName]  # names[0] is NO_NAME
    lines: SentLines | None
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))  # uint64 (l,), where they are known

    def stacks(self, depth: np.ndarray, frames: np.ndarray, ids: np.ndarray | None = None) -> Stacks:
        """Returns stacks of these locations: see Stacks."""
        return Stacks(
            mapping=self.mapping, address=self.address, name=self.name, depth=depth, frames=frames,
            mappings=self.mappings, names=self.names, lines=self.lines, ids=ids,
        )  # fmt: skip


class FileMappings(NamedTuple):
    """The mappings that locations in one file have, by what is known of them."""

    unnamed: MappingKey
    lined: MappingKey
    keeps_address: bool  # of locations with lines; else it would stand for nothing
    named: MappingKey | None  # of locations whose only line has no first line of its function; None: as others


def file_mappings(identity: str, file: str) -> FileMappings:
    """Returns the mappings of locations in a file with this build ID."""
    unnamed = MappingKey(_FILE, identity, file) if identity or file else UNKNOWN
    if _KERNEL_FILE.match(file):
        return FileMappings(unnamed, MappingKey(_KERNEL, "", KERNEL_FILE), False, None)
    if identity:
        return FileMappings(unnamed, MappingKey(_SENT, identity, file), True, None)
    # As collectors name frames of interpreters: without an address, which nothing could be looked up with.
    return FileMappings(unnamed, MappingKey(_SENT, "", file), False, MappingKey(_NAMED, "", file or NAMED_FILE))


def build_id(text: str) -> str:
    """Returns the build ID of pprof, which has no kind, as schemas/icestream/v1/common.proto writes it."""
    if _HEX.fullmatch(text):
        return f"gnu:{text.lower()}"
    return f"go:{text}" if text.count("/") == 3 and ":" not in text else text


def file_address(address: int, memory_start: int, file_offset: int) -> int:
    """Returns the ELF virtual address of an address in memory.

    A profile does not have the file's headers. So this assumes that code is as far from the first address as it is from
    the start of the file, as linkers mostly place it.
    """
    if memory_start < LOW_MEMORY:
        return address
    return address - memory_start + file_offset & _U64


def sent_line(function: str, file: str, line: int, start_line: int, dropped: Counter[str] | None = None) -> SentLine:
    """Returns a line within the limits of messages: texts are cut, which `dropped` counts, and numbers that are none
    become 0."""
    if dropped is not None and (len(function) > MAX_NAME or len(file) > MAX_NAME):
        dropped["names"] += 1
    return SentLine(function[:MAX_NAME], file[:MAX_NAME], _line_number(line), _line_number(start_line))


def _line_number(line: int) -> int:
    """Returns the number of a line, 0 where that is none."""
    return line if 0 <= line <= MAX_LINE else 0


class LocationTable:
    """Takes locations one by one."""

    def __init__(self) -> None:
        self._of_files: dict[tuple[str, str], FileMappings] = {}
        self._mappings: dict[MappingKey, int] = {UNKNOWN: 0}
        self._names: dict[SentLine, int] = {NO_NAME: 0}
        self._locations: dict[tuple[int, int, int, tuple[SentLine, ...]], int] = {}

    def location(self, identity: str, file: str, address: int, lines: Sequence[SentLine]) -> int:
        """Returns the row of a location: an ELF virtual address in the file with this build ID, with its lines."""
        lines = tuple([line for line in lines[:MAX_LINES] if line.function])
        of_file = self._of_files.get((identity, file))
        if of_file is None:
            of_file = self._of_files[identity, file] = file_mappings(identity, file)
        if not lines:
            return self._location(of_file.unnamed, address, 0, ())
        if of_file.named and len(lines) == 1 and not lines[0].start_line:
            return self._location(of_file.named, 0, self._names.setdefault(lines[0], len(self._names)), ())
        return self._location(of_file.lined, address if of_file.keeps_address else 0, 0, lines)

    def _location(self, mapping: MappingKey, address: int, name: int, lines: tuple[SentLine, ...]) -> int:
        row = self._mappings.setdefault(mapping, len(self._mappings))
        return self._locations.setdefault((row, address, name, lines), len(self._locations))

    def all(self) -> ProfileLocations:
        """Returns the locations by their rows."""
        return ProfileLocations(
            mapping=np.array([mapping for mapping, _, _, _ in self._locations], np.int64),
            address=np.array([address for _, address, _, _ in self._locations], np.uint64),
            name=np.array([name for _, _, name, _ in self._locations], np.int64),
            mappings=list(self._mappings),
            names=list(self._names),
            lines=_sent_lines([lines for _, _, _, lines in self._locations]),
        )


def _sent_lines(of_locations: Sequence[tuple[SentLine, ...]]) -> SentLines | None:
    lines = [line for lines in of_locations for line in lines]
    if not lines:
        return None
    texts: dict[str, int] = {}
    return SentLines(
        count=np.array([len(lines) for lines in of_locations], np.int64),
        function=np.array([texts.setdefault(line.function, len(texts)) for line in lines], np.int64),
        file=np.array([texts.setdefault(line.file, len(texts)) for line in lines], np.int64),
        number=np.array([line.line for line in lines], np.int64),
        start_line=np.array([line.start_line for line in lines], np.int64),
        texts=list(texts),
    )
