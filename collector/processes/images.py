"""What a process had mapped from one exec to the next, and which addresses lie in it."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from collector.processes.mapped_files import UNKNOWN, MappedFile
from collector.processes.perfmap import Name
from collector.processes.rows import Row
from icestream import address_ranges


@dataclass
class Located:
    """n addresses, located: a row of `files` and an address each; where `name` is not -1, `names[name]` instead."""

    file: np.ndarray  # int64 (n,)
    address: np.ndarray  # uint64 (n,)
    name: np.ndarray  # int64 (n,)
    files: list[MappedFile]
    names: list[Name] = field(default_factory=list)


def nowhere(count: int) -> Located:
    """Addresses that nothing covers: UNKNOWN at 0."""
    return Located(np.zeros(count, np.int64), np.zeros(count, np.uint64), np.full(count, -1), [UNKNOWN])


@dataclass(frozen=True)
class Image:
    """Never changed: what is mapped later makes another Image with the same `since_ns`."""

    since_ns: int  # CLOCK_MONOTONIC of the exec or of the fork that made it; 0 where that was before we watched
    rows: tuple[Row, ...]

    def add(self, located: Located, addresses: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
        """Locates what is not located yet, of `wanted` (bool); returns which addresses (bool) may be named by a perf
        map."""
        starts, ends, biases, anonymous = self._columns
        if not len(starts):
            return np.zeros(len(addresses), bool)
        row = address_ranges.find(starts, ends, addresses)
        covered = (row >= 0) & (located.file == 0)
        if wanted is not None:
            covered &= wanted
        located.file[covered] = row[covered] + len(located.files)
        located.address[covered] = addresses[covered] + biases[row[covered]]
        located.files = located.files + [row.file for row in self.rows]
        named: np.ndarray = covered & anonymous[row]
        return named

    @cached_property
    def compiles(self) -> bool:
        """Whether it has code that may have been compiled at run time."""
        return any(row.anonymous for row in self.rows)

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        starts, ends, biases = (np.array([row[i] for row in self.rows], np.uint64) for i in range(3))
        return starts, ends, biases, np.array([row.anonymous for row in self.rows], bool)


def locate(images: tuple[Image, ...], addresses: np.ndarray, times_ns: np.ndarray | None) -> tuple[Located, np.ndarray]:
    """Addresses (uint64) in the images of a process, the newest first; and which of them (bool) may be named by a perf
    map. `times_ns` (uint64): when each was seen."""
    located, anonymous = nowhere(len(addresses)), np.zeros(len(addresses), bool)
    if times_ns is not None:
        for image in images:  # each of them, what was seen while it was there
            anonymous |= image.add(located, addresses, times_ns >= np.uint64(image.since_ns))
    for image in images:
        anonymous |= image.add(located, addresses)
    return located, anonymous
