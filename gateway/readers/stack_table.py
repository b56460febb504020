"""Collects the distinct locations, stacks, labels and contexts of a profile while a reader walks through it."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gateway.errors import bad_profile
from icestream.messages.checks import MAX_LINE, MAX_LINES, MAX_NAME, Labels
from icestream.messages.raw import MAX_DEPTH
from icestream.messages.raw_encoder import SentLine, Stacks, Window
from icestream.times import MAX_UNIX_NANO
from icestream.v1.common_pb2 import Mapping

NAMED_FILE = "[sent]"
"""The file of locations that have names, and no file."""
KERNEL_FILE = "[kernel]"
LOW_MEMORY = 1 << 32
"""A mapping below belongs to a program that is not moved when it is loaded: its addresses are those in the file."""

_KERNEL_FILE = re.compile(r"\[(kernel|vmlinux|guest\.kernel)|^vmlinux$")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
# The protobuf package looks a name of an enum up again each time that it is used.
_FILE, _KERNEL, _NAMED, _SENT = map(int, (Mapping.FILE, Mapping.KERNEL, Mapping.NAMED, Mapping.SENT))
_UNKNOWN = (int(Mapping.UNKNOWN), "", "")
_NO_NAME = SentLine("", "", 0, 0)
_U64 = 2**64 - 1


def build_id(text: str) -> str:
    """Returns the build ID of pprof, which has no kind, as schemas/icestream/v1/common.proto writes it."""
    if _HEX.fullmatch(text):
        return f"gnu:{text.lower()}"
    return f"go:{text}" if text.count("/") == 3 and ":" not in text else text


def file_address(address: int, memory_start: int, file_offset: int) -> int:
    """Returns the ELF virtual address of an address in memory.

    It is right where the linker placed code at the same distance from the first address as from the file's start, as
    linkers mostly do: who sends a profile does not send the file's headers.
    """
    if memory_start < LOW_MEMORY:
        return address
    return address - memory_start + file_offset & _U64


def sent_line(function: str, file: str, line: int, start_line: int) -> SentLine:
    """Returns a line within the limits of messages: texts are cut, numbers that are none become 0."""
    return SentLine(function[:MAX_NAME], file[:MAX_NAME], line_number(line), line_number(start_line))


def line_number(line: int) -> int:
    """Returns the number of a line, 0 where that is none."""
    return line if 0 <= line <= MAX_LINE else 0


@lru_cache(maxsize=100)
def _is_kernel(file: str) -> bool:
    return _KERNEL_FILE.match(file) is not None


class StackTable:
    """The rows of a Window that samples refer to."""

    def __init__(self, max_series: int) -> None:
        self.dropped: Counter[str] = Counter()
        self._max_series = max_series
        self._mappings: dict[tuple[int, str, str], int] = {_UNKNOWN: 0}
        self._names: dict[SentLine, int] = {_NO_NAME: 0}
        self._locations: dict[tuple[int, int, int, tuple[SentLine, ...]], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._series: dict[Labels, int] = {}
        self._contexts: dict[bytes, int] = {}

    def location(self, identity: str, file: str, address: int, lines: Sequence[SentLine]) -> int:
        """Returns the row of a location: an ELF virtual address in the file with this build ID, with its lines."""
        lines = tuple([line for line in lines[:MAX_LINES] if line.function])
        if not lines:
            return self._location((_FILE, identity, file) if identity or file else _UNKNOWN, address, 0, ())
        if _is_kernel(file):
            return self._location((_KERNEL, "", KERNEL_FILE), 0, 0, lines)
        if identity:
            return self._location((_SENT, identity, file), address, 0, lines)
        if len(lines) == 1 and not lines[0].start_line:
            # As collectors name frames of interpreters: without an address, which nothing could be looked up with.
            name = self._names.setdefault(lines[0], len(self._names))
            return self._location((_NAMED, "", file or NAMED_FILE), 0, name, ())
        return self._location((_SENT, "", file), 0, 0, lines)

    def _location(self, mapping: tuple[int, str, str], address: int, name: int, lines: tuple[SentLine, ...]) -> int:
        row = self._mappings.setdefault(mapping, len(self._mappings))
        return self._locations.setdefault((row, address, name, lines), len(self._locations))

    def stack(self, locations: tuple[int, ...]) -> int:
        """Returns the row of a stack: rows of its locations, leaf first."""
        if len(locations) > MAX_DEPTH:
            self.dropped["frames"] += len(locations) - MAX_DEPTH
            locations = locations[:MAX_DEPTH]
        return self._stacks.setdefault(locations, len(self._stacks))

    def series(self, labels: Labels, of_profile: Labels) -> int:
        """Returns the row of a set of labels. Beyond the limit it is that of the profile's own labels."""
        row = self._series.get(labels)
        if row is None:
            if len(self._series) >= self._max_series and labels != of_profile:
                self.dropped["labels"] += 1
                return self.series(of_profile, of_profile)
            row = self._series[labels] = len(self._series)
        return row

    def context(self, trace_id: str | bytes, span_id: str | bytes) -> int:
        """Returns the row + 1 of a trace context, given as bytes or in hex; 0 where there is none."""
        try:
            trace, span = (bytes.fromhex(i) if isinstance(i, str) else i for i in (trace_id, span_id))
        except ValueError:
            self.dropped["contexts"] += 1
            return 0
        if not any(trace):
            if any(span):
                self.dropped["contexts"] += 1  # a span without its trace
            return 0
        if len(trace) != 16 or len(span) not in (0, 8):
            self.dropped["contexts"] += 1
            return 0
        return self._contexts.setdefault(trace + span.ljust(8, b"\0"), len(self._contexts) + 1)

    def window(self, start_unix_nano: int, end_unix_nano: int, rows: "SampleRows") -> Window:
        """Returns the samples `rows` with what they refer to. Raises Refused where a time fits no message."""
        times = [start_unix_nano, end_unix_nano, *rows.time_unix_nano]
        if not 0 <= min(times) <= max(times) < MAX_UNIX_NANO:
            raise bad_profile(f"expected times from 1970 to 2099, got {min(times)} to {max(times)} ns")
        locations = list(self._locations)
        contexts = list(self._contexts)
        return Window(
            time_unix_nano=np.array(rows.time_unix_nano, np.int64),
            series=np.array(rows.series, np.int64),
            pid=np.array(rows.pid, np.uint32),
            tid=np.array(rows.tid, np.uint32),
            stack=np.array(rows.stack, np.int64),
            context=np.array(rows.context, np.int64),
            stacks=Stacks(
                mapping=np.array([mapping for mapping, _, _, _ in locations], np.int64),
                address=np.array([address for _, address, _, _ in locations], np.uint64),
                name=np.array([name for _, _, name, _ in locations], np.int64),
                depth=np.array([len(stack) for stack in self._stacks], np.int64),
                frames=np.array([row for stack in self._stacks for row in stack], np.int64),
                mappings=list(self._mappings),
                names=list(self._names),
                lines=[lines for _, _, _, lines in locations],
            ),
            labels=list(self._series),
            trace_ids=b"".join(context[:16] for context in contexts),
            span_ids=b"".join(context[16:] for context in contexts),
            start_unix_nano=start_unix_nano,
            end_unix_nano=end_unix_nano,
        )


class SampleRows:
    """Columns of samples, filled row by row."""

    def __init__(self) -> None:
        self.time_unix_nano: list[int] = []
        self.series: list[int] = []
        self.pid: list[int] = []
        self.tid: list[int] = []
        self.stack: list[int] = []
        self.context: list[int] = []

    def add(self, time_unix_nano: int, series: int, pid: int, tid: int, stack: int, context: int) -> None:
        self.time_unix_nano.append(time_unix_nano)
        self.series.append(series)
        self.pid.append(pid if 0 <= pid < 2**32 else 0)
        self.tid.append(tid if 0 <= tid < 2**32 else 0)
        self.stack.append(stack)
        self.context.append(context)
