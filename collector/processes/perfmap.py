"""Names of code that was compiled at run time: /tmp/perf-PID.map, as perf reads it.

The process appends lines (perfmap_lines.py) as it compiles; where areas overlap, the last one is right. The file
belongs to the process and may hold anything and be large: a child process reads it, only what is new, at most
STEP_BYTES at a time (about 20 ms), and at most MAX_BYTES of a file. An area takes 20 bytes here: its addresses, and
where its line is in the file. The file stays open; the names that are asked for are read from it.

Process IDs come again, in containers always as 1, and the files stay. So what was last written before the program began
is of another one: it is left out, and what is appended to it counts. If the
beginning, or the last bytes read, changed, the file was rewritten: it is read again.
"""

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import numpy as np

from collector.processes import areas
from collector.processes.areas import Areas
from collector.processes.jit_name import JitName
from collector.processes.patience import Patience
from collector.processes.perfmap_messages import MAX_LINES, LinesJob
from collector.processes.perfmap_reader import Owner, PerfMapError, PerfMapReader
from collector.processes.process import folder_of, start_monotonic_ns
from collector.processes.regular_file import hold_in_root, reopen, status_in_root

__all__ = ["JitName", "PerfMap", "PerfMaps"]

MAX_BYTES = 128 << 20
STEP_BYTES = 2 << 20
STEP_LINES = MAX_LINES
MAX_AREAS = 500_000  # of one process; beyond, the oldest are forgotten
MAX_TOTAL = 750_000  # of all; beyond, those of the processes that nobody asked about for longest
MAX_OPEN = 128
_MAX_NAMES = 4096
_TICK_NS = 10_000_000
T = TypeVar("T")
_RECENT = 16_384  # areas that are kept apart, so that adding a few to many costs little


class PerfMap:
    """The areas of one process; `refresh` reads what was appended. For one thread."""

    def __init__(
        self, pid: int, reader: PerfMapReader, root: str = "/proc", began_monotonic_ns: int = 0,
        patience: Patience | None = None,
    ) -> None:  # fmt: skip
        """`began_monotonic_ns`: when the program was executed, if that is known."""
        self._began_monotonic_ns = began_monotonic_ns
        self._pid, self._proc, self._process = pid, root, f"{root}/{pid}"
        self._reader, self._patience = reader, patience or Patience()
        self._path = ""
        self._file = -1  # only keeps it
        self._owner = Owner(0, 0)
        self._failed = False  # the child did not survive the file
        self._forget()

    def refresh(self) -> bool:
        """Reads what is new, or a part of it; returns whether there is more. Nothing is read from a file that is
        missing, that is not the process's own, or that the child did not survive: the areas that were read before stay.
        A file that was replaced or written anew is read from the beginning, and its old areas are forgotten."""
        try:
            status = self._follow()
            return self._file >= 0 and not self._failed and self._read(status.st_size, status.st_mtime_ns)
        except PerfMapError:
            self._failed = True
            return False
        except OSError:
            return False

    def lookup(self, addresses: np.ndarray) -> tuple[np.ndarray, list[JitName]]:
        """Rows (int64) of the names of addresses (uint64), -1 where no area covers them; and the names."""
        lines = self._recent.find(addresses)
        lines = np.where(lines >= 0, lines, self._main.find(addresses))
        distinct, first, row = np.unique(lines, return_index=True, return_inverse=True)
        named = self._names_of(dict(zip(distinct.tolist(), addresses[first].tolist(), strict=True)))
        names: list[JitName] = []
        row_of = np.full(len(distinct), -1, np.int64)
        for i, line in enumerate(distinct.tolist()):
            if line in named:
                row_of[i] = len(names)
                names.append(named[line])
        return row_of[row], names

    def close(self) -> None:
        """Forgets everything."""
        self._let_go()

    def __len__(self) -> int:
        return len(self._main.start) + len(self._recent.start)

    def _forget(self) -> None:
        self._offset = 0  # of what was read
        self._checksum: int | None = 0
        self._exhausted = (-1, -1)  # size and time of the file when there was no more to read
        self._main = self._recent = areas.NONE
        self._names: dict[int, JitName | None] = {}

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._failed = -1, False
        self._forget()

    def _follow(self) -> os.stat_result:
        """Opens the file, also when another one has taken its place. Raises OSError and PerfMapError."""
        if self._file >= 0:
            ours, there = self._wait_for(partial(_look, self._file, self._root(), self._path))
            if os.path.samestat(there, ours) and ours.st_size >= self._offset:
                return ours
            self._let_go()
        inner_pid, user = _identity(self._process)
        self._path = self._path or f"/tmp/perf-{inner_pid}.map"
        self._file, status = self._wait_for(
            partial(_find, self._root(), self._path, user), lambda late: os.close(late[0])
        )
        self._owner = Owner.from_status(status)
        if status.st_size and status.st_mtime_ns < _began_unix_ns(self._process, self._began_monotonic_ns):
            with self._opened() as file:
                lines = self._reader.lines(file, LinesJob(status.st_size, 0, 0, None), self._owner)  # only the checksum
            if lines is None:
                self._let_go()
                raise OSError("the perf map cannot be read")
            self._offset, self._checksum = status.st_size, lines.checksum
            self._exhausted = status.st_size, status.st_mtime_ns
        return status

    def _root(self) -> str:
        return f"{folder_of(self._pid, self._proc)}/root"

    def _wait_for(self, work: Callable[[], T], discard: Callable[[T], None] = lambda late: None) -> T:
        """Does what asks the file system, which may be the user's own. Raises TimeoutError if it does not answer."""
        return self._patience.run(self._pid, self._path, work, discard)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        file = self._wait_for(partial(reopen, self._file), os.close)
        try:
            yield file
        finally:
            with suppress(TimeoutError):
                self._wait_for(partial(os.close, file))

    def _read(self, size: int, written_ns: int) -> bool:
        """Adds the next lines; whether there are more. Raises OSError and PerfMapError."""
        most = min(STEP_BYTES, MAX_BYTES - self._offset)
        if most <= 0 or not size or (size, written_ns) == self._exhausted:  # files of the kernel's have no size
            return False
        with self._opened() as file:
            lines = self._reader.lines(file, LinesJob(self._offset, most, STEP_LINES, self._checksum), self._owner)
        if lines is None:
            return False
        if lines.checksum is None:
            self._forget()
            return self._read(size, written_ns)
        self._add(areas.paint(lines.start, lines.start + lines.size, lines.offset + np.uint32(self._offset)))
        self._offset += lines.used
        self._checksum = lines.checksum
        if not lines.more:
            self._exhausted = size, written_ns
        return lines.more

    def _add(self, new: Areas) -> None:
        self._recent = areas.over(self._recent, new)
        if len(self._recent.start) > _RECENT:
            self._main, self._recent = areas.over(self._main, self._recent), areas.NONE
            self._main = _latest(self._main, MAX_AREAS)

    def _names_of(self, lines: dict[int, int]) -> dict[int, JitName]:
        """The names in lines. `lines`: where each is in the file, -1 for none -> an address in its area. A line has no
        name where the file says something else there by now; that is remembered, too."""
        unknown = {line: address for line, address in lines.items() if line >= 0 and line not in self._names}
        found: dict[int, JitName | None] = {}
        if unknown and self._file >= 0 and not self._failed:
            try:
                with self._opened() as file:
                    names = self._reader.names(file, list(unknown), list(unknown.values()), self._owner)
                found = dict(zip(unknown, names, strict=False))
            except PerfMapError:
                self._failed = True
            except OSError:  # no room for a process, or for a file: the next window may have it
                found = {}
        known = {line: self._names[line] for line in lines if line in self._names} | found
        if len(self._names) + len(found) > _MAX_NAMES:
            self._names.clear()
        self._names |= found
        return {line: name for line, name in known.items() if name is not None}


class PerfMaps:
    """The perf maps of all processes. For one thread, but for `forget` and `close`."""

    def __init__(self, reader: PerfMapReader, root: str = "/proc", patience: Patience | None = None) -> None:
        self._reader, self._root, self._patience = reader, root, patience or Patience()
        self._maps: OrderedDict[int, PerfMap] = OrderedDict()
        self._forgotten: deque[int] = deque()

    def get(self, pid: int, began_monotonic_ns: int = 0) -> PerfMap:
        """The map of a process, which is now the one asked about last. `began_monotonic_ns`: when it executed its
        program, if that is known."""
        self.expire()
        perf_map = self._maps.pop(pid, None)
        if perf_map is None:  # one without areas is false
            perf_map = PerfMap(pid, self._reader, self._root, began_monotonic_ns, self._patience)
        self._maps[pid] = perf_map
        while len(self._maps) > 1 and (
            len(self._maps) > MAX_OPEN or sum(len(perf_map) for perf_map in self._maps.values()) > MAX_TOTAL
        ):
            self._maps.popitem(last=False)[1].close()
        return perf_map

    def forget(self, pid: int) -> None:
        """The process ended, or executes another program. Any thread may say so."""
        self._forgotten.append(pid)

    def close(self) -> None:
        """Ends the process that reads them. Any thread may say so."""
        self._reader.close()
        self._patience.close()

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


def _find(root: str, path: str, user: int) -> tuple[int, os.stat_result]:
    """Holds the perf map of a user. A user may mount files of root's there. Raises OSError."""
    held = hold_in_root(root, path, lambda found: found.st_uid == user, follow=False)
    return held, os.fstat(held)


def _look(held: int, root: str, path: str) -> tuple[os.stat_result, os.stat_result]:
    """The file that is held, and what is at the path; the same if nothing is there: the process has ended, or removed
    it, and its last lines can still be read."""
    ours = os.fstat(held)
    try:
        return ours, status_in_root(root, path)
    except OSError:
        return ours, ours


def _identity(process: str) -> tuple[str, int]:
    """The process ID in its own namespace, and the user as whom it makes files: the last of NSpid and of Uid in
    /proc/PID/status (proc(5)). The owner of /proc/PID may be another user: a process can make root the
    owner. Raises OSError.
    """
    with open(f"{process}/status", encoding="utf-8", errors="replace") as status:
        last = {line.partition(":")[0]: line.split()[-1] for line in status if line.startswith(("NSpid:", "Uid:"))}
    return last.get("NSpid", process.rpartition("/")[2]), int(last.get("Uid", -1))


def _began_unix_ns(process: str, executed_monotonic_ns: int) -> int:
    """When a process, or the program that it executed later, began, or a little before: the clock of files lags by up
    to a tick. 0 where nobody knows."""
    try:
        with open(f"{process}/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[22 - 3])
    except (OSError, ValueError, IndexError):
        return 0
    began_monotonic_ns = max(start_monotonic_ns(ticks), executed_monotonic_ns)
    return time.time_ns() - time.monotonic_ns() + began_monotonic_ns - _TICK_NS
