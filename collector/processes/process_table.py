"""All processes that are known, kept current by the kernel's events."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from collector.processes.known_process import KnownProcess
from collector.processes.listener import ProcessListener
from collector.processes.mapped_history import MappedHistory
from collector.processes.mapped_ranges import MappedRange, MappedRangeReader
from collector.processes.pending_records import PendingRecords
from collector.processes.perfmap import PerfMaps
from collector.processes.process import Process, exists, start_ticks, user_of
from collector.processes.process_events import Event, Executed, Exited, Forked, Mapped, Records

MAX_PROCESSES = 8192
MAX_RANGES = 48_000
"""The most ranges of all processes: they fit into the kernel's map of mappings, with room for what comes between two
windows."""

MAX_EARLIER = 32_768
"""Ranges of all processes that others took the place of."""

MAPPED_PER_S, MAPPED_AT_ONCE = 100, 1000
"""Mappings of processes that listeners have heard of. Each may be a file to open, which takes 0.2 ms."""

_MAX_ANCESTORS = 50  # whose records are decoded for one process
_NEVER = -1


class ProcessTable:
    """Processes by process ID. Has no lock: `ProcessMappings` calls it under its own.

    Until /proc was read, a `Process` that is known from events has (time of the exec, 0, 0) as its program.
    """

    def __init__(self, reader: MappedRangeReader, perf_maps: PerfMaps, listeners: Sequence[ProcessListener]) -> None:
        self.notifications = 0
        """How often listeners were told of mappings."""

        self._reader, self._perf_maps, self._listeners = reader, perf_maps, listeners
        self._known: dict[int, KnownProcess] = {}
        self._pending = PendingRecords()
        self._lost_monotonic_ns = 0
        self._room, self._room_at = float(MAPPED_AT_ONCE), time.monotonic()
        self._earlier = 0  # at least as many as the earlier ranges of all processes

    def __len__(self) -> int:
        return len(self._known)

    def get(self, pid: int) -> KnownProcess | None:
        """What is known of a process. Call `decode_pending` first for what its pending records say."""
        return self._known.get(pid)

    def add(self, pid: int, known: KnownProcess) -> KnownProcess:
        """Takes a process in; returns it. Forgets others where there are too many: first those that ended."""
        if len(self._known) >= MAX_PROCESSES and pid not in self._known:
            for old in sorted(self._known, key=lambda pid: (not self._known[pid].ended, self._known[pid].used))[:512]:
                self.forget(old)
        self._known[pid] = known
        return known

    def forget(self, pid: int) -> None:
        known = self._known.pop(pid)
        self._perf_maps.forget(pid)
        if not known.ended:
            self._notify_end(pid)

    def expire(self, keep_s: float) -> list[int]:
        """Forgets processes that ended and that nobody asked about for so long, and older records; where there are too
        many ranges, also others. Returns the processes' IDs."""
        now = time.monotonic()
        pids = [pid for pid, known in self._known.items() if known.used < now - keep_s and _is_gone(known, now, keep_s)]
        for pid in pids:
            self.forget(pid)
        pids += self._make_room()
        self._forget_earlier(time.monotonic_ns() - int(keep_s * 1e9))
        self._drop_records(time.monotonic_ns() - int(keep_s * 1e9))
        return pids

    def _make_room(self) -> list[int]:
        """Forgets processes where they have too many ranges: of the user who has most, the one not used for longest."""
        left = sum(len(known.ranges) for known in self._known.values())
        if left <= MAX_RANGES:
            return []
        taken: Counter[int | None] = Counter()
        processes: defaultdict[int | None, list[KnownProcess]] = defaultdict(list)
        for known in sorted(self._known.values(), key=lambda known: known.used, reverse=True):
            if known.user is None:
                known.user = user_of(known.process.pid)
            taken[known.user] += len(known.ranges)
            processes[known.user].append(known)
        forgotten = []
        while left > MAX_RANGES - MAX_RANGES // 8:
            most = max(taken, key=taken.__getitem__)
            known = processes[most].pop()
            taken[most] -= len(known.ranges)
            left -= len(known.ranges)
            forgotten.append(known.process.pid)
            self.forget(known.process.pid)
        return forgotten

    def _forget_earlier(self, until_monotonic_ns: int = 0) -> None:
        """Forgets what was replaced before a time; where there is too much, of the user who has most, the older half
        of it."""
        for known in self._known.values():
            known.history.forget(until_monotonic_ns)
        while (left := sum(len(known.history) for known in self._known.values())) > MAX_EARLIER * 7 // 8:
            of_user: defaultdict[int | None, list[MappedHistory]] = defaultdict(list)
            for known in self._known.values():
                if len(known.history):
                    known.user = user_of(known.process.pid) if known.user is None else known.user
                    of_user[known.user].append(known.history)
            most = max(of_user.values(), key=lambda histories: sum(map(len, histories)))
            median = np.median(np.concatenate([history.changes() for history in most]))
            for history in most:
                history.forget(int(median) + 1)
        self._earlier = left

    def apply(self, records: Records, eager: bool) -> None:
        """Takes the kernel's records. Decodes them at once if `eager`, and always those of processes that listeners
        have heard of; else when `decode_pending` is called. Where processes map more than anybody can look at, those
        that map most have older mappings left out: /proc is read for them once somebody asks."""
        if records.lost:
            self._lost_monotonic_ns = max(self._lost_monotonic_ns, records.lost_monotonic_ns)
        if not records.records:
            return
        before, self._room_at = self._room_at, time.monotonic()
        self._room = min(MAPPED_AT_ONCE, self._room + (self._room_at - before) * MAPPED_PER_S)
        for pid in sorted(self._pending.add(records.records), key=self._pending.count):
            known = self._known.get(pid)
            if known is not None and not known.ended:
                count, room = self._pending.count(pid), int(self._room)
                left_out = count > room and self._pending.cut(pid, room)
                self._room = max(0.0, self._room - count)
                self.decode_pending(pid)
                if left_out and pid in self._known:
                    self._known[pid].as_of_monotonic_ns = _NEVER
            elif eager:
                self.decode_pending(pid)
        self._drop_records()

    def decode_pending(self, pid: int, until_monotonic_ns: int | None = None, ancestors: int = 0) -> None:
        """Decodes the pending records of a process, and notifies the listeners of what changed."""
        if pid not in self._pending:
            return
        known = self._known.get(pid)
        before = len(known.history) if known is not None else 0
        learned = False
        for event in self._pending.pop(pid, until_monotonic_ns):
            self._notify_event(pid, event)  # also what /proc has said meanwhile: it says nothing of earlier programs
            if known is not None and event.time_monotonic_ns <= known.as_of_monotonic_ns:
                continue
            if isinstance(event, Mapped):
                if known is not None and known.history.known:
                    mapped_range = self._reader.mapped(pid, event, known.history.current)
                    learned |= known.history.put(mapped_range, event.time_monotonic_ns)
                continue
            if isinstance(event, Exited):
                learned = False
                if known is not None and not known.ended:
                    known.ended = True
                    self._notify_end(pid)
                continue
            if isinstance(event, Executed):
                known = self._execute(pid, known, event)
            else:
                known = self._fork(pid, known, event, ancestors)
            learned = bool(known.ranges)
        self._earlier += max(0, len(known.history) - before) if known is not None else 0
        if self._earlier > MAX_EARLIER:
            self._forget_earlier()
        if known is not None and learned and not known.ended:
            self.notify(known)

    def ranges_at(self, pid: int, monotonic_ns: int, ancestors: int = 0) -> tuple[MappedRange, ...] | None:
        """What a process had mapped at a time; None where that is not known."""
        if ancestors < _MAX_ANCESTORS:
            self.decode_pending(pid, monotonic_ns, ancestors + 1)
        known = self._known.get(pid)
        return known.history.at(monotonic_ns) if known else None

    def is_stale(self, known: KnownProcess) -> bool:
        """Whether events of the process may have been lost."""
        return known.as_of_monotonic_ns < self._lost_monotonic_ns

    def notify(self, known: KnownProcess) -> None:
        """Tells the listeners what the process maps."""
        self.notifications += 1
        for listener in self._listeners:
            listener.mapped(known.process, list(known.ranges))

    def _execute(self, pid: int, known: KnownProcess | None, event: Executed) -> KnownProcess:
        """The process executes a program."""
        now, monotonic_ns = time.monotonic(), event.time_monotonic_ns
        if known is None:
            process, history = _from_event(pid, monotonic_ns), MappedHistory()
            history.begin(monotonic_ns)
            known = KnownProcess(process, history, now, now, as_of_monotonic_ns=monotonic_ns, from_events=True)
            return self.add(pid, known)
        known.process = known.process._replace(program=(monotonic_ns, 0, 0))
        known.from_events, known.ended = True, False
        self._perf_maps.forget(pid)
        known.history.begin(monotonic_ns)
        known.as_of_monotonic_ns = monotonic_ns
        known.read_soon()
        return known

    def _fork(self, pid: int, known: KnownProcess | None, event: Forked, ancestors: int) -> KnownProcess:
        """The process is new, and has what its parent has mapped."""
        now, monotonic_ns = time.monotonic(), event.time_monotonic_ns
        process = _from_event(pid, monotonic_ns)
        history = MappedHistory()
        if known is not None:
            self.forget(pid)
            history = known.history
            history.begin(monotonic_ns, another_process=True)
        history.adopt(self.ranges_at(event.parent, monotonic_ns, ancestors))
        parent = self._known.get(event.parent)
        forked = KnownProcess(
            process,
            history,
            now,
            now,
            as_of_monotonic_ns=_NEVER if parent is not None and self.is_stale(parent) else monotonic_ns,
            from_events=True,
            parent=event.parent,
            forked_monotonic_ns=monotonic_ns,
        )
        return self.add(pid, forked)

    def _drop_records(self, until_monotonic_ns: int = 0) -> None:
        """Drops old pending records; /proc has to be read for their processes."""
        for pid in self._pending.drop(until_monotonic_ns):
            if pid in self._known:
                self._known[pid].as_of_monotonic_ns = _NEVER

    def _notify_event(self, pid: int, event: Event) -> None:
        for listener in self._listeners:
            listener.event(pid, event)

    def _notify_end(self, pid: int) -> None:
        for listener in self._listeners:
            listener.ended(pid)


def _is_gone(known: KnownProcess, now: float, again_s: float) -> bool:
    """Whether a process ended. Its events may be lost, so this looks for it now and then."""
    if known.ended or now - known.checked < again_s:
        return known.ended
    known.checked = now
    return not exists(known.process.pid)


def _from_event(pid: int, monotonic_ns: int) -> Process:
    """A process that began, or executed its program, at that time."""
    return Process(pid, start_ticks(monotonic_ns), (monotonic_ns, 0, 0), False)
