"""Names of code that was compiled at run time: /tmp/perf-PID.map, as perf reads it.

Format (tools/perf/Documentation/jit-interface.txt in Linux): a line an area, `START SIZE NAME`, start and size in
hexadecimal. The process appends as it compiles; where areas overlap, the last one is right. The file belongs to the
process and may hold anything and be large: only new bytes are read, at most STEP_BYTES at a time (about 20 ms), of a
file at most MAX_BYTES. Of each area 20 bytes are kept: its addresses, and where its line is in the file, which stays
open and from where the names are read that are asked for.
"""

import os
import re
from collections import OrderedDict, deque
from collections.abc import Callable

import numpy as np

from collector.processes import areas
from collector.processes.areas import Areas
from collector.processes.jit_name import Name, parse_name
from collector.processes.regular_file import open_regular

__all__ = ["Name", "PerfMap", "PerfMaps"]

MAX_BYTES = 128 << 20
STEP_BYTES = 2 << 20
MAX_AREAS = 500_000  # of one process; beyond, the oldest are forgotten
MAX_TOTAL = 750_000  # of all; beyond, those of the processes that nobody asked about for longest
MAX_OPEN = 128
_STEP_LINES = 32_768
_MAX_LINE = 1100
_MAX_NAMES = 4096
_RECENT = 16_384  # areas that are kept apart, so that adding a few to many costs little
_PADDING = b"\n" * 64
_HEX = np.full(256, 255, np.uint8)
_HEX[[ord(c) for c in "0123456789abcdefABCDEF"]] = [*range(16), *range(10, 16)]
_BLANK = np.isin(np.arange(256), [9, 32])
_LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]+)[ \t]+(?:0x)?([0-9a-fA-F]+)[ \t]+([^\n]*[^\s])")


class PerfMap:
    """The areas of one process; `refresh` reads what was appended. For one thread."""

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._process = f"{root}/{pid}"
        self._path = ""
        self._file = -1
        self._forget()

    def refresh(self) -> bool:
        """Reads what is new, or a part of it: then there is more. A file that was replaced starts from nothing; one
        that is missing, or not the process's own, tells nothing."""
        try:
            self._follow()
            return self._file >= 0 and self._read()
        except OSError:
            return False

    def lookup(self, addresses: np.ndarray) -> tuple[np.ndarray, list[Name]]:
        """Rows (int64) of the names of addresses (uint64), -1 where no area covers them; and the names."""
        lines = self._recent.find(addresses)
        lines = np.where(lines >= 0, lines, self._main.find(addresses))
        distinct, first, row = np.unique(lines, return_index=True, return_inverse=True)
        names: list[Name] = []
        row_of = np.full(len(distinct), -1, np.int64)
        for i, (line, address) in enumerate(zip(distinct.tolist(), addresses[first].tolist(), strict=True)):
            name = self._name(line, address) if line >= 0 else None
            if name is not None:
                row_of[i] = len(names)
                names.append(name)
        return row_of[row], names

    def close(self) -> None:
        """Forgets everything."""
        self._let_go()

    def __len__(self) -> int:
        return len(self._main.start) + len(self._recent.start)

    def _forget(self) -> None:
        self._offset = 0
        self._main = self._recent = areas.NONE
        self._names: dict[int, Name] = {}

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._forget()

    def _follow(self) -> None:
        """Opens the file, also when another one has taken its place. Raises OSError."""
        if self._file >= 0:
            ours = os.fstat(self._file)
            try:
                there = os.lstat(self._path)
            except OSError:  # the process has ended, or removed it: its last lines can still be read
                there = ours
            if os.path.samestat(there, ours) and ours.st_size >= self._offset:
                return
            self._let_go()
        self._path = self._path or f"{self._process}/root/tmp/perf-{_inner_pid(self._process)}.map"
        descriptor = open_regular(self._path, os.O_NOFOLLOW)
        try:
            own = os.fstat(descriptor).st_uid in (0, os.stat(self._process).st_uid)
        except OSError:
            own = False
        if own:
            self._file = descriptor
        else:
            os.close(descriptor)

    def _read(self) -> bool:
        """Adds the next lines; whether there are more. Raises OSError."""
        size = min(STEP_BYTES, MAX_BYTES - self._offset)
        data = os.pread(self._file, size, self._offset) if size > 0 else b""
        lines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))[:_STEP_LINES]
        if not len(lines):
            if len(data) > 2 * _MAX_LINE:
                self._offset += len(data)  # no line of ours is that long
            return len(data) == STEP_BYTES
        used = int(lines[-1]) + 1
        start, length, offset = _parse(data[:used], lines)
        self._add(areas.paint(start, start + length, (offset + self._offset).astype(np.uint32)))
        self._offset += used
        return used < len(data) - _MAX_LINE or len(data) == STEP_BYTES

    def _add(self, new: Areas) -> None:
        self._recent = areas.over(self._recent, new)
        if len(self._recent.start) > _RECENT:
            self._main, self._recent = areas.over(self._main, self._recent), areas.NONE
            self._main = _latest(self._main, MAX_AREAS)

    def _name(self, line: int, address: int) -> Name | None:
        """The name in the line at that place of the file; None where the file says something else there by now."""
        name = self._names.get(line)
        if name is None and self._file >= 0:
            try:
                match = _LINE.match(os.pread(self._file, _MAX_LINE, line))
            except OSError:
                return None
            if match is None or not 0 <= address - int(match[1][:16], 16) < int(match[2][:16], 16):
                return None
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            name = self._names[line] = parse_name(match[3].decode("utf-8", "replace"))
        return name


class PerfMaps:
    """The perf maps of all processes. For one thread, but for `forget`."""

    def __init__(self, create: Callable[[int], PerfMap] = PerfMap) -> None:
        self._create = create
        self._maps: OrderedDict[int, PerfMap] = OrderedDict()
        self._forgotten: deque[int] = deque()

    def of(self, pid: int) -> PerfMap:
        """The map of a process, which is now the one asked about last."""
        self.expire()
        perf_map = self._maps.pop(pid, None) or self._create(pid)
        self._maps[pid] = perf_map
        while len(self._maps) > 1 and (
            len(self._maps) > MAX_OPEN or sum(len(perf_map) for perf_map in self._maps.values()) > MAX_TOTAL
        ):
            self._maps.popitem(last=False)[1].close()
        return perf_map

    def forget(self, pid: int) -> None:
        """The process ended, or executes another program. Any thread may say so."""
        self._forgotten.append(pid)

    def expire(self) -> None:
        """Closes the maps of processes that were forgotten. Call it now and then."""
        while self._forgotten:
            perf_map = self._maps.pop(self._forgotten.popleft(), None)
            if perf_map is not None:
                perf_map.close()


def _latest(areas: Areas, limit: int) -> Areas:
    """Where there are too many: three quarters of the limit, those whose lines were written last."""
    if len(areas.value) <= limit:
        return areas
    count = len(areas.value) - limit * 3 // 4
    keep = areas.value >= np.partition(areas.value, count)[count]
    return Areas(*(column[keep] for column in areas))


def _parse(data: bytes, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and size (uint64) of the areas of well-formed lines, and where in the data each line begins (int64).
    `ends`: where newlines are, the last one at the end of the data."""
    text = np.frombuffer(data + _PADDING, np.uint8)
    begins = np.append(0, ends[:-1] + 1)
    start, at, fine = _hexadecimal(text, begins)
    size, at, fine_too = _hexadecimal(text, at)
    fine &= fine_too & (at < ends) & (size > 0) & (size < 1 << 32) & (start < np.uint64((1 << 64) - (1 << 32)))
    return start[fine], size[fine], begins[fine]


def _hexadecimal(text: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number (uint64) at each place, where what comes behind the blanks after it begins, and whether there is one,
    of at most 16 digits, and a blank."""
    at = at + 2 * ((text[at] == ord("0")) & (text[at + 1] | 32 == ord("x")))
    number, first = np.zeros(len(at), np.uint64), at
    for _ in range(16):
        digit = _HEX[text[at]]
        more = digit < 16
        if not more.any():
            break
        number = np.where(more, number << np.uint64(4) | digit, number)
        at = at + more
    behind = at
    for _ in range(8):
        blank = _BLANK[text[at]]
        if not blank.any():
            break
        at = at + blank
    return number, at, (behind > first) & (at > behind)


def _inner_pid(process: str) -> str:
    """The process ID in its own namespace: the last of NSpid in /proc/PID/status."""
    with open(f"{process}/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            if line.startswith("NSpid:"):
                return line.split()[-1]
    return process.rpartition("/")[2]
