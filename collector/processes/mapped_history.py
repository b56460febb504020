"""What a process has mapped, and what it had mapped before, as long as samples of that time may come.

The kernel reports what is mapped, not what is unmapped. So a range stays until another one takes its place, and the
history has the ranges, or parts of them, whose place was taken. A program that is executed, and another process with
the same ID, take the place of everything.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collector.processes.mapped_files import UNKNOWN, MappedFile
from collector.processes.mapped_ranges import MappedRange, put
from collector.processes.perfmap import JitName
from icestream.columns import address_ranges

MAX_EARLIER = 2048  # ranges of one process
_MAX_CELLS = 1 << 20  # addresses x earlier ranges, at a time
_EXEC_NS = np.uint64(10_000_000)
_ALWAYS = np.uint64(2**64 - 1)


@dataclass
class Located:
    """n located addresses: a row of `files` and an address in it each, or `names[name]` where `name` is not -1."""

    file: np.ndarray  # int64 (n,)
    address: np.ndarray  # uint64 (n,)
    name: np.ndarray  # int64 (n,)
    files: list[MappedFile]
    names: list[JitName] = field(default_factory=list)


def nowhere(count: int) -> Located:
    """Addresses that nothing covers: UNKNOWN at 0."""
    return Located(np.zeros(count, np.int64), np.zeros(count, np.uint64), np.full(count, -1), [UNKNOWN])


class Earlier(NamedTuple):
    """Ranges that were mapped until a time."""

    until_monotonic_ns: int
    ranges: tuple[MappedRange, ...]
    everything: bool = False  # that was mapped then
    another_process: bool = False  # that had the process ID until then


class _Columns(NamedTuple):
    start: np.ndarray  # uint64 (n,)
    end: np.ndarray
    bias: np.ndarray
    anonymous: np.ndarray  # bool (n,)
    files: list[MappedFile]


class MappedHistory:
    """The ranges of a process ID at each time. Answers "unknown" for times that it has forgotten."""

    def __init__(self, ranges: tuple[MappedRange, ...] | None = None, before: "MappedHistory | None" = None) -> None:
        """`ranges`: None where nothing is known yet. `before`: of an earlier process with the same ID."""
        self.began_monotonic_ns = 0
        """When the program was executed, or the process began, where that was seen."""

        self._ranges = ranges
        self._changing: list[MappedRange] | None = None
        self._now_cached: _Columns | None = None
        self._all_cached: _Columns | None = None
        self._earlier: deque[Earlier] = deque(before._earlier if before else ())
        self._count = len(before) if before else 0  # of their ranges
        self._forgotten: tuple[int, int, int] = before._forgotten if before else (0, 0, 0)  # first, last, until when

    @property
    def known(self) -> bool:
        return self._ranges is not None

    @property
    def ranges(self) -> tuple[MappedRange, ...]:
        """What is mapped now, sorted by address."""
        if self._changing is not None:
            self._ranges, self._changing = tuple(self._changing), None
        return self._ranges or ()

    def current(self) -> Sequence[MappedRange]:
        """The same as `ranges`, until something changes."""
        return self._changing if self._changing is not None else self._ranges or ()

    @property
    def compiles(self) -> bool:
        """Whether code may have been compiled at run time."""
        return bool(self._now.anonymous.any())

    def changes(self) -> np.ndarray:
        """The times (uint64, ascending) at which something took the place of something else."""
        return np.array([earlier.until_monotonic_ns for earlier in self._earlier], np.uint64)

    def put(self, mapped_range: MappedRange, monotonic_ns: int) -> bool:
        """The process mapped a range. Returns whether that changes anything."""
        if self._changing is None:
            self._changing = list(self.ranges)
        replaced: list[MappedRange] = []
        changed = put(self._changing, mapped_range, replaced)
        if changed:
            self._forget_columns()
        if replaced:
            self._add(Earlier(monotonic_ns, tuple(replaced)))
        return changed

    def read(self, ranges: tuple[MappedRange, ...], complete_monotonic_ns: int, monotonic_ns: int) -> None:
        """/proc said at `monotonic_ns` what is mapped; what was known may lack what happened since
        `complete_monotonic_ns`, negative: since ever. What took a place between the two, did so nobody knows when."""
        after = list(self.ranges)
        replaced: list[MappedRange] = []
        for mapped_range in ranges:
            put(after, mapped_range, replaced)
        there = set(ranges)
        gone = [mapped_range for mapped_range in after if mapped_range not in there]
        if replaced:
            self._add(Earlier(max(0, complete_monotonic_ns), tuple(replaced)))
        if replaced or gone:
            self._add(Earlier(monotonic_ns, (*gone, *map(_unknown, replaced))))
        self._ranges, self._changing = ranges, None
        self._forget_columns()

    def begin(self, monotonic_ns: int, another_process: bool = False) -> None:
        """Everything was unmapped, by an exec or because the process with this ID is another one from now on."""
        self._add(Earlier(monotonic_ns, self.ranges, True, another_process))
        self._ranges, self.began_monotonic_ns = (), monotonic_ns
        self._forget_columns()

    def adopt(self, ranges: tuple[MappedRange, ...] | None) -> None:
        """This was mapped from the beginning on; None: nobody knows what."""
        self._ranges = ranges
        self._forget_columns()

    def at(self, monotonic_ns: int) -> tuple[MappedRange, ...] | None:
        """What was mapped at a time, perhaps with more that was mapped later elsewhere; None where that is not
        known."""
        if not self.known or monotonic_ns < self._forgotten[2]:
            return None
        ranges = self.ranges
        for earlier in reversed(self._earlier):
            if earlier.until_monotonic_ns <= monotonic_ns:
                break
            if earlier.everything:
                ranges = earlier.ranges
            else:
                changing = list(ranges)
                for mapped_range in earlier.ranges:
                    put(changing, mapped_range)
                ranges = tuple(changing)
        return ranges

    def forget(self, until_monotonic_ns: int) -> None:
        """Forgets what was replaced before a time."""
        while self._earlier and self._earlier[0].until_monotonic_ns < until_monotonic_ns:
            self._forget_first()

    def __len__(self) -> int:
        """How many earlier ranges there are. What is everything counts as one at least."""
        return self._count

    def locate(self, addresses: np.ndarray, times_monotonic_ns: np.ndarray | None) -> tuple[Located, np.ndarray]:
        """Locates addresses (uint64) in what was mapped when each was seen (uint64); without times, in what is mapped
        now. What nothing covers that was mapped then may have been seen while a thread left its program by exec: for
        10 ms from then on, the program before counts. Returns also which addresses (bool) are in memory without a
        file."""
        located = nowhere(len(addresses))
        columns = self._now
        row = address_ranges.find(columns.start, columns.end, addresses)
        times = np.full(len(addresses), _ALWAYS) if times_monotonic_ns is None else times_monotonic_ns
        newest = self._earlier[-1].until_monotonic_ns if self._earlier else self._forgotten[2]
        if (times < np.uint64(newest)).any() or (self._earlier and (row < 0).any()):
            row = self._find_earlier(row, addresses, times, timed=times_monotonic_ns is not None)
            columns = self._all
        found = np.flatnonzero(row >= 0)
        located.file[found] = row[found] + 1
        located.address[found] = addresses[found] + columns.bias[row[found]]
        located.files = [UNKNOWN, *columns.files]
        unknown = np.array([file == UNKNOWN for file in located.files])[located.file]
        located.file[unknown], located.address[unknown] = 0, 0
        anonymous = np.zeros(len(addresses), bool)
        anonymous[found] = columns.anonymous[row[found]]
        return located, anonymous

    def _find_earlier(self, row: np.ndarray, addresses: np.ndarray, times: np.ndarray, timed: bool) -> np.ndarray:
        """The row in `_all` of each address; `row` is the one in `_now`."""
        entries = list(self._earlier)
        counts = np.array([len(entry.ranges) for entry in entries], np.int64)
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])  # range of each entry, and the end
        ranges = int(first[-1])
        entry = np.searchsorted(self.changes(), times, side="right")  # the first that was replaced later
        # An entry that is everything hides the later ones; one of another process also the earlier ones.
        last, floor = np.full(len(entries) + 1, len(entries)), np.zeros(len(entries) + 1, np.int64)
        for i in range(len(entries) - 1, -1, -1):
            last[i] = i if entries[i].everything else last[i + 1]
        for i, each in enumerate(entries):
            floor[i + 1] = i + 1 if each.another_process else floor[i]
        stop = np.concatenate([first[1:], first[-1:]])[last[entry]]
        begin, floor = first[entry], first[floor[entry]]
        found = np.where((row >= 0) & (last[entry] == len(entries)), row + ranges, -1)
        look = np.flatnonzero((begin < stop) | ((found < 0) & (floor < begin)))
        columns, until = self._all, np.repeat(self.changes(), counts)
        for part in np.array_split(look, len(look) * ranges // _MAX_CELLS + 1) if len(look) else ():
            at = addresses[part, None]
            inside = (columns.start[:ranges] <= at) & (at < columns.end[:ranges])
            number = np.arange(ranges)
            later = np.where(inside & (number >= begin[part, None]), number, ranges).min(axis=1, initial=ranges)
            before = np.where(inside & (number < begin[part, None]), number, -1).max(axis=1, initial=-1)
            # Without a time, the program before counts; with one, only while its registers may still be there.
            left = until[before] + _EXEC_NS if timed else _ALWAYS
            again = (found[part] < 0) & (before >= floor[part]) & (times[part] <= left)
            found[part] = np.where(later < stop[part], later, np.where(again, before, found[part]))
        start, end, forgotten_until = self._forgotten
        forgotten = (
            (times < np.uint64(forgotten_until)) & (addresses >= np.uint64(start)) & (addresses <= np.uint64(end))
        )
        result: np.ndarray = np.where(forgotten, -1, found)
        return result

    def _add(self, earlier: Earlier) -> None:
        if self._earlier and earlier.until_monotonic_ns < self._earlier[-1].until_monotonic_ns:
            earlier = earlier._replace(until_monotonic_ns=self._earlier[-1].until_monotonic_ns)
        self._earlier.append(earlier)
        self._count += len(earlier.ranges) or 1
        while len(self._earlier) > 1 and self._count > MAX_EARLIER:
            self._forget_first()
        self._forget_columns()

    def _forget_first(self) -> None:
        forgotten = self._earlier.popleft()
        self._count -= len(forgotten.ranges) or 1
        start, end, until = self._forgotten
        if forgotten.everything:
            start, end = 0, int(_ALWAYS)
        elif forgotten.ranges:
            bounds = [(each.start, each.end - 1) for each in forgotten.ranges] + ([(start, end)] if until else [])
            start, end = min(low for low, _ in bounds), max(high for _, high in bounds)
        self._forgotten = start, end, max(until, forgotten.until_monotonic_ns)
        self._forget_columns()

    def _forget_columns(self) -> None:
        self._now_cached = self._all_cached = None

    @property
    def _now(self) -> _Columns:
        if self._now_cached is None:
            self._now_cached = _columns(self.ranges)
        return self._now_cached

    @property
    def _all(self) -> _Columns:
        """The columns of earlier ranges, and then of those now."""
        if self._all_cached is None:
            self._all_cached = _columns([*(each for earlier in self._earlier for each in earlier.ranges), *self.ranges])
        return self._all_cached


def _columns(ranges: Sequence[MappedRange]) -> _Columns:
    starts, ends, biases = (np.array([mapped_range[i] for mapped_range in ranges], np.uint64) for i in range(3))
    anonymous = np.array([mapped_range.anonymous for mapped_range in ranges], bool)
    return _Columns(starts, ends, biases, anonymous, [mapped_range.file for mapped_range in ranges])


def _unknown(mapped_range: MappedRange) -> MappedRange:
    return mapped_range._replace(bias=0, file=UNKNOWN, file_key="", anonymous=False, entry=None)
