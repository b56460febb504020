"""Addresses of a process as (mapped file, ELF virtual address), which mean the same in every process and on every host.

The kernel's events say what a process maps as it maps it (watch.py). /proc/PID/maps says it for processes that were
there before, and where events were lost or are not available. It is read when a process is noticed, when it has
executed another program since, and when no mapping covers an address. A process that ended keeps its mappings until
`expire`: its last samples are still to come.

Events are decoded at once while there is time for that, else when somebody asks about their process.
"""

import os
import threading
import time
from collections.abc import Sequence

import numpy as np

from collector.processes.known_process import KnownProcess
from collector.processes.listener import ProcessListener
from collector.processes.mapped_files import JIT, FileCache
from collector.processes.mapped_history import Located, MappedHistory, nowhere
from collector.processes.mapped_ranges import MappedRange, MappedRangeReader
from collector.processes.perfmap import PerfMap, PerfMaps
from collector.processes.perfmap_reader import PerfMapReader
from collector.processes.process import Process, is_another, read_process, start_monotonic_ns, thread_of
from collector.processes.process_events import Records
from collector.processes.process_table import ProcessTable

__all__ = ["Located", "MappedRange", "ProcessMappings"]

_KEEP_S = 60.0
_NO_TIMES = np.empty(0, np.uint64)
_PERF_MAP_STEPS = 8  # of reading a perf map, at a time


class ProcessMappings:
    """The mappings of all processes of this host that were noticed or that events were about.

    Several threads may use it; `locate` and `expire` are for one of them.
    """

    def __init__(self, files: FileCache, listeners: Sequence[ProcessListener] = ()) -> None:
        self._files = files
        self._reader = MappedRangeReader(files)
        self._perf_maps = PerfMaps(PerfMapReader(), patience=files.beside())
        self._table = ProcessTable(self._reader, self._perf_maps, listeners)
        self._lock = threading.RLock()
        self.followed = False
        """Whether the kernel reports all events of processes: then what is known changes with events only."""

    def __len__(self) -> int:
        return len(self._table)

    def notice(self, pid: int) -> Process | None:
        """Reads a process that is new, or that has executed another program since. None when it has ended."""
        process, compiles = self._notice(pid)
        if compiles:
            self._perf_map(pid).refresh()  # while the process lives
        return process

    def notify(self, pid: int, address: int | None = None) -> None:
        """Tells the listeners what a process maps, for the eBPF program, which does not know the process, or knows
        nothing that covers the address. Reads /proc first where that may help."""
        with self._lock:
            before = self._table.notifications
            process, _ = self._notice(pid)
            known = self._table.get(pid)
            if known is None or process is None or known.ended or self._table.notifications != before:
                return
            if address is None or any(
                mapped_range.start <= address < mapped_range.end for mapped_range in known.ranges
            ):
                self._table.notify(known)
            else:
                self._refresh(known)

    def ranges(self, pid: int) -> list[MappedRange]:
        """What is known of a process, sorted by address."""
        with self._lock:
            self._table.decode_pending(pid)
            known = self._table.get(pid)
            return list(known.ranges) if known else []

    def scan(self, seconds: float = 0.5) -> int:
        """Reads the processes that run now, the youngest first, for at most that time. Returns how many it read."""
        until, count = time.monotonic() + seconds, 0
        for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
            if time.monotonic() > until:
                break
            count += self._notice(pid)[0] is not None
        return count

    def changes(self, pid: int) -> np.ndarray:
        """The times (uint64, ascending) at which something took the place of something else that the process had
        mapped."""
        with self._lock:
            self._table.decode_pending(pid)
            known = self._table.get(pid)
            return known.history.changes() if known else _NO_TIMES

    def locate(self, pid: int, addresses: np.ndarray, times_monotonic_ns: np.ndarray | None = None) -> Located:
        """User addresses (uint64) of one process. What nothing covers is UNKNOWN at 0: it is no code, or nobody can
        say any more what it was.

        `times_monotonic_ns` (uint64, optional) says when each was seen: it is located in what the process had mapped
        then. Without times, a program that was executed before counts where the newer one does not cover an address.
        """
        with self._lock:
            self._table.decode_pending(pid)
            known = self._table.get(pid)
            if known is None:
                return nowhere(len(addresses))
            known.used = time.monotonic()
            if self._table.is_stale(known):
                self._refresh(known, at_once=True)
            located, anonymous = known.history.locate(addresses, times_monotonic_ns)
            if not located.file.all() and (self._adopt(known) or self._refresh(known)):
                located, anonymous = known.history.locate(addresses, times_monotonic_ns)
            if times_monotonic_ns is not None:  # what an earlier program compiled had other names
                anonymous &= times_monotonic_ns >= np.uint64(known.history.began_monotonic_ns)
        if anonymous.any():
            self._name(pid, located, addresses, anonymous)
        return located

    def apply(self, records: Records, eager: bool = True) -> None:
        """Takes the kernel's records. Decodes them at once if `eager`, and always those of processes that listeners
        have heard of; else when somebody asks about their process."""
        with self._lock:
            self._table.apply(records, eager)

    def expire(self) -> list[int]:
        """Forgets processes that ended and that nobody asked about for a minute, and others where there are too many;
        returns their IDs. Call it once a window."""
        with self._lock:
            pids = self._table.expire(_KEEP_S)
        self._perf_maps.expire()
        self._files.expire()
        return pids

    def close(self) -> None:
        """Ends the process that reads perf maps."""
        self._perf_maps.close()

    def _notice(self, pid: int) -> tuple[Process | None, bool]:
        """The process, and whether it has code that may have been compiled at run time."""
        with self._lock:
            self._table.decode_pending(pid)
            known = self._table.get(pid)
            if known is not None and self.followed and self._is_confirmed(known):
                return known.process, known.history.compiles
            process = read_process(pid)
            if process is not None and not process.kernel:
                if known is not None and known.ended:
                    known.ended = thread_of(pid) == pid  # else its first thread has ended, and others live
                if known is None or not self._is_current(known, process):
                    known = self._learn(process, known) or known
                elif known.from_events and not known.ended:
                    known.process, known.from_events = process, False
            return process, known is not None and known.history.compiles

    def _is_confirmed(self, known: KnownProcess) -> bool:
        """Whether /proc has confirmed what is known, and no event has changed it since."""
        confirmed = known.history.known and not known.from_events and not known.ended
        return bool(confirmed) and not self._table.is_stale(known)

    def _is_current(self, known: KnownProcess, process: Process) -> bool:
        """Whether what is known is of this process, and of the program that it runs."""
        if self._table.is_stale(known) or not known.history.known:
            return False
        if known.from_events or known.ended:
            return known.is_same(process)
        return known.process == process

    def _learn(self, process: Process, known: KnownProcess | None) -> KnownProcess | None:
        """Reads what a process maps; None where it maps nothing (any more)."""
        as_of_monotonic_ns = time.monotonic_ns()
        before = known if known is not None and known.is_same(process) else None
        try:
            ranges = tuple(self._reader.read(process.pid, before.ranges if before else ()))
        except OSError:
            return None
        if not ranges or is_another(process):
            return None
        now = time.monotonic()
        if before is not None:
            history = before.history
            history.read(ranges, before.as_of_monotonic_ns, as_of_monotonic_ns)
        else:
            if known is not None:
                self._table.forget(process.pid)
                known.history.begin(start_monotonic_ns(process.start_ticks), another_process=True)
            history = MappedHistory(ranges, known.history if known is not None else None)
        learned = KnownProcess(process, history, now, now, as_of_monotonic_ns=as_of_monotonic_ns)
        self._table.add(process.pid, learned)
        self._table.notify(learned)
        return learned

    def _adopt(self, known: KnownProcess) -> bool:
        """Gives a forked process whose parent was not known what the parent has mapped. Returns whether that worked."""
        if known.history.known or not known.parent:
            return False
        parent, known.parent = known.parent, 0
        process = read_process(parent)
        if process is None or process.start_ticks > known.process.start_ticks:
            return False
        self._notice(parent)
        known.history.adopt(self._table.ranges_at(parent, known.forked_monotonic_ns))
        return bool(known.ranges)

    def _refresh(self, known: KnownProcess, at_once: bool = False) -> bool:
        """Reads a process once more. Returns whether it found something new.

        It reads ever less often while it finds nothing new: without frame pointers, what looks like a return address
        often is none.
        """
        now, as_of_monotonic_ns = time.monotonic(), time.monotonic_ns()
        if known.ended or (now - known.refreshed < known.wait_s and not at_once):
            return False
        known.refreshed = now
        process = read_process(known.process.pid)
        if process is None or not known.is_same(process):
            return False
        try:
            ranges = tuple(self._reader.read(known.process.pid, known.ranges))
        except OSError:
            ranges = ()
        complete_monotonic_ns = known.as_of_monotonic_ns
        if ranges:
            known.as_of_monotonic_ns = as_of_monotonic_ns
        if not ranges or known.ranges == ranges:
            known.read_later()
            return False
        known.history.read(ranges, complete_monotonic_ns, as_of_monotonic_ns)
        known.read_soon()
        self._table.notify(known)
        return True

    def _perf_map(self, pid: int) -> PerfMap:
        with self._lock:
            known = self._table.get(pid)
            return self._perf_maps.get(pid, known.history.began_monotonic_ns if known else 0)

    def _name(self, pid: int, located: Located, addresses: np.ndarray, anonymous: np.ndarray) -> None:
        """Names the anonymous addresses by the process's perf map."""
        perf_map = self._perf_map(pid)
        for _ in range(_PERF_MAP_STEPS):
            more = perf_map.refresh()
            rows, names = perf_map.lookup(addresses[anonymous])
            if not more or (rows >= 0).all():
                break
        located.name[anonymous], located.names = rows, names
        located.file[located.name >= 0] = len(located.files)
        located.address[located.name >= 0] = 0
        located.files.append(JIT)
