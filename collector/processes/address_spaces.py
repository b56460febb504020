"""What a process had mapped from one exec to the next, and which addresses lie in it."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from collector.processes.mapped_files import UNKNOWN, MappedFile
from collector.processes.mapped_ranges import MappedRange
from collector.processes.perfmap import Name
from icestream import address_ranges


@dataclass
class Located:
    """n located addresses: a row of `files` and an address in it each, or `names[name]` where `name` is not -1."""

    file: np.ndarray  # int64 (n,)
    address: np.ndarray  # uint64 (n,)
    name: np.ndarray  # int64 (n,)
    files: list[MappedFile]
    names: list[Name] = field(default_factory=list)


def nowhere(count: int) -> Located:
    """Addresses that nothing covers: UNKNOWN at 0."""
    return Located(np.zeros(count, np.int64), np.zeros(count, np.uint64), np.full(count, -1), [UNKNOWN])


@dataclass(frozen=True)
class AddressSpace:
    """What a process has mapped at a time. Never changed: what is mapped later makes another one."""

    since_monotonic_ns: int  # of the exec or the fork that made it; 0 where we did not watch yet
    ranges: tuple[MappedRange, ...]

    def add(self, located: Located, addresses: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
        """Locates those of the `wanted` addresses (bool) that are not located yet. Returns which addresses (bool) a
        perf map may name."""
        starts, ends, biases, anonymous = self._columns
        if not len(starts):
            return np.zeros(len(addresses), bool)
        row = address_ranges.find(starts, ends, addresses)
        covered = (row >= 0) & (located.file == 0)
        if wanted is not None:
            covered &= wanted
        located.file[covered] = row[covered] + len(located.files)
        located.address[covered] = addresses[covered] + biases[row[covered]]
        located.files = located.files + [mapped_range.file for mapped_range in self.ranges]
        named: np.ndarray = covered & anonymous[row]
        return named

    @cached_property
    def compiles(self) -> bool:
        """Whether it has code that may have been compiled at run time."""
        return any(mapped_range.anonymous for mapped_range in self.ranges)

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        starts, ends, biases = (
            np.array([mapped_range[i] for mapped_range in self.ranges], np.uint64) for i in range(3)
        )
        return starts, ends, biases, np.array([mapped_range.anonymous for mapped_range in self.ranges], bool)


def locate(
    spaces: tuple[AddressSpace, ...], addresses: np.ndarray, times_monotonic_ns: np.ndarray | None
) -> tuple[Located, np.ndarray]:
    """Locates addresses (uint64) in the address spaces of a process, the newest first. Returns also which addresses
    (bool) a perf map may name. `times_monotonic_ns` (uint64) says when each was seen."""
    located, anonymous = nowhere(len(addresses)), np.zeros(len(addresses), bool)
    if times_monotonic_ns is not None:
        for space in spaces:  # first in the address space of the time when it was seen
            anonymous |= space.add(located, addresses, times_monotonic_ns >= np.uint64(space.since_monotonic_ns))
    for space in spaces:
        anonymous |= space.add(located, addresses)
    return located, anonymous
