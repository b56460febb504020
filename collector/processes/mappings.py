"""Addresses of a process as (mapped file, ELF virtual address), which mean the same in every process and on every host.

What a process maps is learned from the kernel's events as it maps it (watch.py); of processes that were there before,
and where events were lost or are not to be had, from /proc/PID/maps: when the process is noticed, when it executed
another program since, and when an address is not covered. A process that ended keeps its mappings until `expire`: its
last samples are still to come.

Events are decoded at once while there is time for that, else when somebody asks about their process.
"""

import os
import threading
import time
from collections.abc import Callable

import numpy as np

from collector.processes.backlog import Backlog
from collector.processes.images import Image, Located, locate, nowhere
from collector.processes.known import Known
from collector.processes.mapped_files import JIT, FileCache
from collector.processes.perfmap import PerfMaps
from collector.processes.process import Process, read_process, start_ticks
from collector.processes.process_events import Event, Executed, Exited, Forked, Mapped, Records
from collector.processes.rows import Row, RowMaker, put

__all__ = ["MAX_PROCESSES", "Located", "Mappings", "Row"]

MAX_PROCESSES = 8192
MAX_IMAGES = 4  # of one process: what it executed one after the other
_KEEP_S = 60.0
_MAX_ANCESTORS = 50  # that are decoded for the sake of one process
_NEVER = -1
_STEPS = 8  # of reading a perf map, at a time


class Mappings:
    """The mappings of all processes of this host that were noticed or of which events told.

    `changed(process, rows)` is called when the executable mappings of a process were learned or changed, `ended(pid)`
    when it ended or is forgotten, `told(pid, event)` for each event; all on the thread that learned it, in order, and
    while other threads wait, so they must be quick. Until /proc was read, a `Process` of which events told has as
    program (time of the exec, 0, 0). Several threads may use it; `locate` and `expire` are for one of them.
    """

    def __init__(
        self,
        files: FileCache,
        changed: Callable[[Process, list[Row]], None] = lambda process, rows: None,
        ended: Callable[[int], None] = lambda pid: None,
        told: Callable[[int, Event], None] = lambda pid, event: None,
    ) -> None:
        self._files = files
        self._make = RowMaker(files)
        self._changed, self._ended, self._told = changed, ended, told
        self._lock = threading.RLock()
        self._known: dict[int, Known] = {}
        self._backlog = Backlog()
        self._lost_ns = 0
        self._times_told = 0
        self._perf_maps = PerfMaps()

    def notice(self, pid: int) -> Process | None:
        """Reads a process that is new, or that executed another program since; None when it has ended."""
        process, compiles = self._notice(pid)
        if compiles:
            self._perf_maps.of(pid).refresh()  # while the process lives
        return process

    def asked(self, pid: int, address: int | None = None) -> None:
        """The eBPF program does not know the mappings of a process, or none that covers the address: learns them, or
        tells them again."""
        with self._lock:
            told = self._times_told
            process, _ = self._notice(pid)
            known = self._known.get(pid)
            if (
                known is None
                or process is None
                or self._times_told != told
                or (known.ended and not known.has_threads())
            ):
                return
            known.ended = False
            if address is None or any(row.start <= address < row.end for row in known.rows):
                self._tell(known)
            else:
                self._refresh(known)

    def rows(self, pid: int) -> list[Row]:
        """What is known of a process, sorted by address."""
        with self._lock:
            self._settle(pid)
            known = self._known.get(pid)
            return list(known.rows) if known else []

    def scan(self, seconds: float = 0.5) -> int:
        """Reads the processes that run now, the youngest first, for at most that time; how many were read."""
        until, count = time.monotonic() + seconds, 0
        for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
            if time.monotonic() > until:
                break
            count += self._notice(pid)[0] is not None
        return count

    def locate(self, pid: int, addresses: np.ndarray, times_ns: np.ndarray | None = None) -> Located:
        """User addresses (uint64) of one process. What nothing covers is UNKNOWN at 0: it is no code, or nobody can
        say any more what it was.

        `times_ns` (uint64, CLOCK_MONOTONIC, optional): when each was seen; then what the process had mapped before it
        executed its program counts for what was seen before that. Else an older program counts where the newer does
        not cover an address.
        """
        with self._lock:
            self._settle(pid)
            known = self._known.get(pid)
            if known is None:
                return nowhere(len(addresses))
            known.used = time.monotonic()
            if self._is_stale(known):
                self._refresh(known, at_once=True)
            located, anonymous = locate(known.images, addresses, times_ns)
            if not located.file.all() and (self._adopt(known) or self._refresh(known)):
                located, anonymous = locate(known.images, addresses, times_ns)
        if anonymous.any():
            self._name(pid, located, addresses, anonymous)
        return located

    def apply(self, records: Records, eager: bool = True) -> None:
        """What the kernel told; decoded at once (`eager`, and what is about processes that were told of), or when
        somebody asks."""
        with self._lock:
            if records.lost:
                self._lost_ns = max(self._lost_ns, records.lost_ns)
            if not records.records:
                return
            pids = self._backlog.add(records.records)
            for pid in pids:
                if eager or (pid in self._known and not self._known[pid].ended):
                    self._settle(pid)
            for pid in self._backlog.drop():
                if pid in self._known:
                    self._known[pid].as_of_ns = _NEVER

    def __len__(self) -> int:
        return len(self._known)

    def expire(self) -> list[int]:
        """Forgets processes that nobody asked about for a minute; returns their IDs. Call it once a window."""
        limit = time.monotonic() - _KEEP_S
        with self._lock:
            gone = [pid for pid, known in self._known.items() if known.used < limit]
            for pid in gone:
                self._forget(pid)
            for pid in self._backlog.drop(time.monotonic_ns() - int(_KEEP_S * 1e9)):
                if pid in self._known:
                    self._known[pid].as_of_ns = _NEVER
        self._perf_maps.expire()
        self._files.expire()
        return gone

    def _forget(self, pid: int) -> None:
        known = self._known.pop(pid)
        self._perf_maps.forget(pid)
        if not known.ended:
            self._ended(pid)

    def _add(self, pid: int, known: Known) -> Known:
        if len(self._known) >= MAX_PROCESSES and pid not in self._known:
            for old in sorted(self._known, key=lambda pid: (not self._known[pid].ended, self._known[pid].used))[:512]:
                self._forget(old)
        self._known[pid] = known
        return known

    # What events tell

    def _settle(self, pid: int, until_ns: int | None = None, ancestors: int = 0) -> None:
        """Decodes the records of a process that wait, and tells of what changed."""
        if pid not in self._backlog:
            return
        known = self._known.get(pid)
        rows: list[Row] | None = None  # of its image, being changed
        learned = False
        for event in self._backlog.take(pid, until_ns):
            if known is not None and event.time_ns <= known.as_of_ns:
                continue
            self._told(pid, event)
            if isinstance(event, Mapped):
                if known is not None and known.images:
                    rows = list(known.images[0].rows) if rows is None else rows
                    learned |= put(rows, self._make.mapped(pid, event))
                continue
            if known is not None and rows is not None:
                known.images = (Image(known.images[0].since_ns, tuple(rows)), *known.images[1:])
            rows = None
            if isinstance(event, Exited):
                learned = False
                if known is not None and not known.ended:
                    known.ended = True
                    self._ended(pid)
                continue
            known = self._begin(pid, known, event, ancestors)
            learned = bool(known.images[:1] and known.images[0].rows)
        if known is not None and rows is not None:
            known.images = (Image(known.images[0].since_ns, tuple(rows)), *known.images[1:])
        if known is not None and learned and not known.ended:
            self._tell(known)

    def _begin(self, pid: int, known: Known | None, event: Executed | Forked, ancestors: int) -> Known:
        """A process that was forked, or that executes a program."""
        now, time_ns = time.monotonic(), event.time_ns
        if isinstance(event, Executed) and known is not None:
            process = known.process._replace(program=(time_ns, 0, 0))
            known.process, known.told, known.ended = process, True, False
            self._perf_maps.forget(pid)
            known.images = (Image(time_ns, ()), *known.images)[:MAX_IMAGES]
            known.as_of_ns = time_ns
            known.read_soon()
            return known
        process = Process(pid, start_ticks(time_ns), (time_ns, 0, 0), False)
        if known is not None:
            self._forget(pid)
        if isinstance(event, Executed):
            return self._add(pid, Known(process, (Image(time_ns, ()),), now, now, as_of_ns=time_ns, told=True))
        images = self._images_of(event.parent, time_ns, ancestors)
        parent = self._known.get(event.parent)
        as_of_ns = _NEVER if parent is not None and self._is_stale(parent) else time_ns
        known = Known(process, images, now, now, as_of_ns=as_of_ns, told=True, parent=event.parent, forked_ns=time_ns)
        return self._add(pid, known)

    def _images_of(self, pid: int, time_ns: int, ancestors: int) -> tuple[Image, ...]:
        """What a process had mapped at a time; () where that is not known."""
        if ancestors < _MAX_ANCESTORS:
            self._settle(pid, time_ns, ancestors + 1)
        known = self._known.get(pid)
        if known is None:
            return ()
        image = next((image for image in known.images if image.since_ns <= time_ns), None)
        return () if image is None else (Image(time_ns, image.rows),)

    # What /proc tells

    def _notice(self, pid: int) -> tuple[Process | None, bool]:
        """And whether it has code that may have been compiled at run time."""
        with self._lock:
            self._settle(pid)
            process = read_process(pid)
            known = self._known.get(pid)
            if process is not None:
                if known is None or not self._holds(known, process):
                    known = self._learn(process, known) or known
                elif known.told and not known.ended:
                    known.process, known.told = process, False
            return process, known is not None and any(image.compiles for image in known.images[:1])

    def _is_stale(self, known: Known) -> bool:
        """Whether events that concern it may have been lost."""
        return known.as_of_ns < self._lost_ns

    def _holds(self, known: Known, process: Process) -> bool:
        """Whether what is known is of this process, and of the program that it runs."""
        if self._is_stale(known) or not known.images:
            return False
        if known.told or known.ended:
            return known.is_same(process)
        return known.process == process

    def _learn(self, process: Process, known: Known | None) -> Known | None:
        """Reads what a process maps; None where it maps nothing (any more)."""
        as_of_ns = time.monotonic_ns()
        before = known.images if known is not None and known.is_same(process) else ()
        try:
            rows = self._make.read(process.pid, before[0].rows if before else ())
        except OSError:
            return None
        if not rows:
            return None
        now = time.monotonic()
        if known is not None and not before:
            self._forget(process.pid)
        images = (Image(before[0].since_ns if before else 0, tuple(rows)), *before)[:MAX_IMAGES]
        known = self._add(process.pid, Known(process, images, now, now, as_of_ns=as_of_ns))
        self._tell(known)
        return known

    def _adopt(self, known: Known) -> bool:
        """A forked process whose parent was not known: has what the parent has; whether that worked."""
        if known.images or not known.parent:
            return False
        parent, known.parent = known.parent, 0
        process = read_process(parent)
        if process is None or process.start_ticks > known.process.start_ticks:
            return False
        self._notice(parent)
        known.images = self._images_of(parent, known.forked_ns, 0)
        return bool(known.images)

    def _refresh(self, known: Known, at_once: bool = False) -> bool:
        """Reads a process again; ever less often while that finds nothing new, since without frame pointers what looks
        like a return address is often none. Whether there was something."""
        now, as_of_ns = time.monotonic(), time.monotonic_ns()
        if known.ended or (now - known.refreshed < known.wait and not at_once):
            return False
        known.refreshed = now
        process, before = read_process(known.process.pid), known.images[:1]
        if process is None or not known.is_same(process):
            return False
        try:
            rows = tuple(self._make.read(known.process.pid, before[0].rows if before else ()))
        except OSError:
            rows = ()
        if rows:
            known.as_of_ns = as_of_ns
        if not rows or (before and before[0].rows == rows):
            known.read_later()
            return False
        since = before[0].since_ns if before else 0
        known.images = (Image(since, rows), *known.images)[:MAX_IMAGES]
        known.read_soon()
        self._tell(known)
        return True

    def _tell(self, known: Known) -> None:
        self._times_told += 1
        self._changed(known.process, list(known.rows))

    def _name(self, pid: int, located: Located, addresses: np.ndarray, anonymous: np.ndarray) -> None:
        """Names what a perf map names."""
        perf_map = self._perf_maps.of(pid)
        for _ in range(_STEPS):
            more = perf_map.refresh()
            rows, names = perf_map.lookup(addresses[anonymous])
            if not more or (rows >= 0).all():
                break
        located.name[anonymous], located.names = rows, names
        located.file[located.name >= 0] = len(located.files)
        located.address[located.name >= 0] = 0
        located.files.append(JIT)
