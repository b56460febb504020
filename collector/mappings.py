"""Addresses of a process as (mapped file, ELF virtual address), which mean the same in every process and on every host.

What a process maps is read once, and again when an address is not covered, or when the process executed another
program. A process that ended keeps its mappings until `expire`: its last samples are still to come.
"""

import os
import re
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collector.mapped_files import JIT, UNKNOWN, VDSO, FileCache, MappedFile, Place
from collector.perfmap import Name, PerfMap
from collector.process import Process, read_process
from icestream.v1.common_pb2 import Mapping

MAX_MAPPINGS = 16_384  # executable ones of one process
MAX_PROCESSES = 8192
_KEEP_S = 60.0
_REFRESH_FIRST_S, _REFRESH_LAST_S = 4.0, 64.0
_MASK = (1 << 64) - 1
_ANONYMOUS = MappedFile(Mapping.UNKNOWN, "", "[anon]")
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *([^\n]*)$", re.MULTILINE)


@dataclass
class Located:
    """n addresses, located: a row of `files` and an address each; where `name` is not -1, `names[name]` instead."""

    file: np.ndarray  # int64 (n,)
    address: np.ndarray  # uint64 (n,)
    name: np.ndarray  # int64 (n,)
    files: list[MappedFile]
    names: list[Name] = field(default_factory=list)


_Line = tuple[bytes, ...]  # as _LINE cuts it


class _Row(NamedTuple):
    start: int
    end: int
    bias: int  # ELF virtual address - address, modulo 2^64
    file: MappedFile
    anonymous: bool


@dataclass
class _Mapped:
    """The executable mappings of a process, sorted by address."""

    process: Process
    rows: dict[_Line, _Row]  # of /proc/PID/maps
    starts: np.ndarray  # uint64
    ends: np.ndarray  # uint64
    biases: np.ndarray  # uint64
    files: list[MappedFile]
    anonymous: np.ndarray  # bool: may be named by a perf map


@dataclass
class _Cached:
    mapped: _Mapped
    used: float
    refreshed: float
    wait: float  # from then until it may be read again
    before: _Mapped | None = None  # what it had mapped when it was read before
    perf_map: PerfMap | None = None


class Mappings:
    """The mappings of all processes of this host that were noticed."""

    def __init__(self, files: FileCache) -> None:
        self._files = files
        self._cached: dict[int, _Cached] = {}

    def notice(self, pid: int) -> Process | None:
        """Reads a process that is new, or that executed another program since; None when it has ended."""
        process = read_process(pid)
        cached = self._cached.get(pid)
        if process is None or (cached is not None and cached.mapped.process == process):
            return process
        mapped = self._read(process)
        if mapped is not None:
            now = time.monotonic()
            same = cached is not None and cached.mapped.process.start_ticks == process.start_ticks
            before = cached.mapped if cached and same else None
            self._cached[pid] = _Cached(mapped, now, now, _REFRESH_FIRST_S, before)
        return process

    def locate(self, pid: int, addresses: np.ndarray) -> Located:
        """User addresses (uint64) of one process. What nothing covers is UNKNOWN at 0: it is no code, or nobody can
        say any more what it was."""
        count = len(addresses)
        cached = self._cached.get(pid)
        if cached is None:
            nothing = np.zeros(count, np.int64)
            return Located(nothing, np.zeros(count, np.uint64), nothing - 1, [UNKNOWN])
        cached.used = time.monotonic()
        located = self._locate(cached, addresses)
        if not located.file.all() and self._refresh(cached):
            located = self._locate(cached, addresses)
        if cached.before is not None and not located.file.all():
            _add(located, cached.before, addresses)
        return located

    def __len__(self) -> int:
        return len(self._cached)

    def expire(self) -> list[int]:
        """Forgets processes that nobody asked about for a minute; returns their IDs. Call it once a window."""
        limit = time.monotonic() - _KEEP_S
        gone = [pid for pid, cached in self._cached.items() if cached.used < limit]
        gone += list(self._cached)[: max(0, len(self._cached) - len(gone) - MAX_PROCESSES)]
        return [pid for pid in gone if self._cached.pop(pid, None) is not None]

    def _locate(self, cached: _Cached, addresses: np.ndarray) -> Located:
        count = len(addresses)
        located = Located(np.zeros(count, np.int64), np.zeros(count, np.uint64), np.full(count, -1), [UNKNOWN])
        _add(located, cached.mapped, addresses)
        anonymous = np.concatenate([[False], cached.mapped.anonymous])[located.file]
        if anonymous.any():
            cached.perf_map = cached.perf_map or PerfMap(cached.mapped.process.pid)
            cached.perf_map.refresh()
            located.name[anonymous] = cached.perf_map.lookup(addresses[anonymous])
            located.names = cached.perf_map.names
            located.file[located.name >= 0] = len(located.files)
            located.address[located.name >= 0] = 0
            located.files.append(JIT)
        return located

    def _refresh(self, cached: _Cached) -> bool:
        """Reads a process again; ever less often while that finds nothing new, since without frame pointers what looks
        like a return address is often none."""
        now = time.monotonic()
        if now - cached.refreshed < cached.wait:
            return False
        mapped = self._read(cached.mapped.process, cached.mapped)
        cached.refreshed = now
        if mapped is None or mapped is cached.mapped:
            cached.wait = min(2 * cached.wait, _REFRESH_LAST_S)
            return False
        cached.before, cached.mapped, cached.wait = cached.mapped, mapped, _REFRESH_FIRST_S
        return True

    def _read(self, process: Process, before: _Mapped | None = None) -> _Mapped | None:
        """What a process maps now, `before` itself where that is the same; None where it has ended."""
        try:
            with open(f"/proc/{process.pid}/maps", "rb") as maps:
                lines = _LINE.findall(maps.read())[:MAX_MAPPINGS]
        except OSError:
            return None
        if not lines:
            return None
        if before is not None and list(before.rows) == lines:
            return before
        known = before.rows if before is not None else {}
        rows = {line: known.get(line) or self._row(process.pid, line) for line in lines}
        starts, ends, biases = (np.array([row[i] for row in rows.values()], np.uint64) for i in range(3))
        anonymous = np.array([row.anonymous for row in rows.values()], bool)
        return _Mapped(process, rows, starts, ends, biases, [row.file for row in rows.values()], anonymous)

    def _row(self, pid: int, line: _Line) -> _Row:
        start, end, offset = int(line[0], 16), int(line[1], 16), int(line[2], 16)
        device = os.makedev(int(line[3], 16), int(line[4], 16))
        path = line[6].decode("utf-8", "replace").replace("\\012", "\n").removesuffix(" (deleted)")
        as_offset = offset - start & _MASK
        try:
            if path == VDSO:
                identity = self._files.vdso()
            elif path.startswith("/"):
                identity = self._files.identify(Place(pid, start, end, device, int(line[5]), path))
            else:
                return _Row(start, end, 0, MappedFile(Mapping.UNKNOWN, "", path) if path else _ANONYMOUS, True)
        except OSError:
            return _Row(start, end, as_offset, MappedFile(Mapping.UNKNOWN, "", path), False)
        if identity is None:  # no ELF file: code that something generated into a file
            return _Row(start, end, as_offset, MappedFile(Mapping.UNKNOWN, "", path), True)
        vaddr = identity.elf.vaddr(offset)
        if vaddr is None:
            return _Row(start, end, as_offset, MappedFile(Mapping.UNKNOWN, "", path), False)
        return _Row(start, end, vaddr - start & _MASK, MappedFile(Mapping.FILE, identity.build_id, path), False)


def _add(located: Located, mapped: _Mapped, addresses: np.ndarray) -> None:
    """Locates what is not located yet."""
    at = np.searchsorted(mapped.starts, addresses, side="right") - 1
    covered = (at >= 0) & (addresses < mapped.ends[at]) & (located.file == 0)
    located.file[covered] = at[covered] + len(located.files)
    located.address[covered] = addresses[covered] + mapped.biases[at[covered]]
    located.files = located.files + mapped.files
