"""Makes the series labels of sampled threads; docs/labels.md lists them.

Reads what names a process while it lives. Makes labels once for each thread and thread name, and anew when the process
changes: another program, another process context, another service in its activity, its pod. Labels with the name of a
span are not kept: anybody may make many of them.

When a process executes another program, or gets the ID of an earlier process, the labels before are kept for a minute:
samples have those of their time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collector.labels.cgroup import Cgroup, read_cgroup
from collector.labels.container import Container, Containers
from collector.labels.deferred import Deferred
from collector.labels.label_config import LabelConfig
from collector.labels.process_context import ContextReader
from collector.labels.process_facts import Facts, read_facts, read_thread_name
from collector.labels.process_labels import ProcessDescription, meta_labels, process_labels
from collector.labels.text import clean
from collector.processes.listener import ProcessListener
from collector.processes.process import Process, folder_of, is_another, read_process, start_monotonic_ns
from collector.processes.process_events import Event, Executed, Forked, Mapped
from icestream.clickhouse.span_operations import SPAN_NAME
from icestream.labels.relabel import MAX_VALUE, relabel
from icestream.messages.checks import Labels

if TYPE_CHECKING:
    from collector.labels.kubernetes import Pod

MAX_PROCESSES = 16_384
MAX_THREADS = 4096  # of one process
MAX_HINTS = 4096
MAX_PROGRAMS = 64  # of one process that are remembered
MAX_EARLIER = 4096  # programs of all processes
_KEEP_S = 60.0  # windows that are built late have samples of what is gone
_AGAIN_S = 60.0  # until a process whose memory did not answer is read once more


class Hint(NamedTuple):
    """What events say about a process that may be gone before /proc can be read."""

    comm: str = ""
    executable: str = ""
    parent: int = 0
    since_monotonic_ns: int = 0  # when the program was executed, or the process forked; 0: not known


NO_HINT = Hint()


@dataclass(slots=True)
class _Process:
    process: Process | None = None  # None: it was gone
    facts: Facts = field(default_factory=Facts)
    context: ContextReader | None = None
    container: Container = field(default_factory=Container)
    pod: Pod | None = None
    activity: str = ""  # the service that it named last
    hint: Hint = NO_HINT
    read_hint: Hint = NO_HINT  # the hint when the facts were read
    since_monotonic_ns: int = 0  # when the program began
    guessed: bool = False  # no event has said yet when it began: its process began then, or it was seen to run
    read_monotonic_ns: int = 0  # when reading the facts began
    read_again: float = float("inf")  # when the facts are read once more, by time.monotonic
    base: dict[str, str] | None = None
    threads: dict[int, tuple[str, Labels | None]] = field(default_factory=dict)  # name and labels of each

    def now(self) -> Facts:
        """Returns what /proc said, or what events say if the process was gone or has executed another program since."""
        facts, hint = self.facts, self.hint
        if self.process is None:
            return replace(facts, comm=hint.comm, executable=hint.executable)
        if hint is self.read_hint or not hint.comm:
            return facts
        if hint.executable:
            another = os.path.basename(hint.executable) != os.path.basename(facts.executable)
        else:
            another = hint.comm != facts.comm
        return Facts(hint.comm, hint.executable, facts.group) if another else replace(facts, comm=hint.comm)

    def renew(self) -> None:
        """Forgets the labels, because something new is known."""
        self.base = None
        self.threads.clear()


class _Earlier(NamedTuple):
    """A program that a process ran until a time."""

    until_monotonic_ns: int
    process: _Process


class ThreadLabels(ProcessListener):
    """Labels by thread. `notice` and `look` read /proc while a process runs; `labels` answers from memory.

    `defer`, `look`, `event` and `hint` are for any thread, the other methods for one.
    """

    def __init__(self, host: str, config: LabelConfig | None = None, containers: Containers | None = None) -> None:
        self._host = clean(host)
        self._config = config or LabelConfig()
        self._containers = containers or Containers()
        self._known: dict[int, _Process] = {}
        self._services: dict[int, str] = {}
        self._hints: dict[int, Hint] = {}  # of the programs that processes run now
        self._passed: dict[int, list[Hint]] = {}  # of those that they ran before, until `_current` takes them
        self._earlier: dict[int, deque[_Earlier]] = {}
        self._looked: dict[int, _Process] = {}  # what `look` read, until `_current` takes it
        self._gone: dict[int, float] = {}  # when `labels` was first asked about a process that it did not know
        self._hints_lock = threading.Lock()
        self._deferred = Deferred()

    def defer(self, pid: int) -> bool:
        """Whether the details of a process can be read later, because events say what is most important. Its labels
        say so until then."""
        return not self._was_read(pid) and pid in self._hints and self._deferred.add(pid)

    def look(self, process: Process) -> None:
        """Reads a process while it runs; `notice` or `labels` takes that when it is asked about it."""
        if (read := self._read(process)) is not None:
            with self._hints_lock:
                self._looked[process.pid] = read
                if len(self._looked) > MAX_HINTS:
                    del self._looked[next(iter(self._looked))]

    def notice(self, process: Process) -> None:
        """Reads a process that is new or runs another program; of others, reads the process context."""
        known = self._current(process.pid)
        if (
            known is None
            or known.process != process
            or time.monotonic() >= known.read_again
            or self._hints.get(process.pid, known.read_hint) is not known.read_hint
        ):
            if (read := self._read(process)) is not None:
                self._learn(process.pid, read)
        elif known.context and known.context.look():
            known.renew()

    def event(self, pid: int, event: Event) -> None:
        """Keeps what an event says of a process, which may be gone before it can be read."""
        if isinstance(event, Mapped):
            if event.path.startswith("/"):
                self.hint(pid, executable_path=event.path)
        elif isinstance(event, Executed):
            self.hint(pid, comm=event.comm, monotonic_ns=event.time_monotonic_ns)
        elif isinstance(event, Forked):
            self.hint(pid, parent=event.parent, monotonic_ns=event.time_monotonic_ns)

    def hint(self, pid: int, comm: str = "", executable_path: str = "", parent: int = 0, monotonic_ns: int = 0) -> None:
        """What an event says, at a time: `parent` when a process is forked, `comm` when it executes a program,
        `executable_path` of a file that it maps with code. Only the first file after an exec counts."""
        with self._hints_lock:
            before = self._hints.get(pid, NO_HINT)
            if monotonic_ns and (before.comm or pid in self._known):
                self._pass(pid, before)
            hint = Hint(parent=parent, since_monotonic_ns=monotonic_ns) if parent else before
            if comm:
                hint = Hint(clean(comm), "", hint.parent, monotonic_ns)
            if executable_path and hint.comm and not hint.executable:
                hint = hint._replace(executable=executable_path[:4096].removesuffix(" (deleted)"))
            if hint is before:
                return
            self._hints[pid] = hint
            if len(self._hints) > MAX_HINTS:
                del self._hints[next(iter(self._hints))]

    def declare(self, services: Mapping[int, str]) -> None:
        """Takes the services that processes name in their activity. Call it with every window. A process that names
        none any more keeps its service while it runs the same program."""
        services = {pid: clean(service) for pid, service in services.items()}
        for pid, service in services.items():
            known = self._current(pid)
            if known is not None and known.activity != service:
                known.activity = service
                known.renew()
        self._services = services
        if self._config.pods is not None:
            for known in self._known.values():
                self._look_for_pod(known)

    def changes(self, pid: int) -> np.ndarray:
        """The times (uint64, ascending) at which a process began to run another program, or became another one."""
        self._current(pid)
        return np.array([earlier.until_monotonic_ns for earlier in self._earlier.get(pid, ())], np.uint64)

    def labels(
        self, pid: int, tid: int, thread_name: str | None, span_name: str = "", monotonic_ns: int | None = None
    ) -> Labels | None:
        """The labels that a thread has, or had at a time, and that works for a span of this name; None if a relabeling
        rule drops it. Without a thread name, reads it from /proc; if the thread is gone, takes the process's name.
        `thread_name` is the latest: the main thread of an earlier program had the name of that one."""
        known = self._current(pid)
        if known is None:
            self._add(pid, _Process())
            self._gone[pid] = time.monotonic()
            known = self._current(pid) or _Process()
        if monotonic_ns is not None:
            for earlier in self._earlier.get(pid, ()):
                if monotonic_ns < earlier.until_monotonic_ns:
                    known = earlier.process
                    thread_name = known.now().comm if tid == pid else thread_name
                    break
        cached = known.threads.get(tid)
        if cached is None or thread_name not in (None, cached[0]):
            name = thread_name or read_thread_name(pid, tid) or known.now().comm
            cached = name, self._labels(pid, tid, known, clean(name))
            if len(known.threads) >= MAX_THREADS:
                known.threads.clear()
            known.threads[tid] = cached
        return self._labels(pid, tid, known, clean(cached[0]), clean(span_name)) if span_name else cached[1]

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets processes that have ended, and those that were gone a minute ago when `labels` was called. Call it
        after every window."""
        gone = []
        while self._gone and self._gone[pid := next(iter(self._gone))] < time.monotonic() - _KEEP_S:
            del self._gone[pid]
            if not self._was_read(pid):
                gone.append(pid)
        expired = self._deferred.expire()
        with self._hints_lock:
            for pid in (*pids, *gone):
                self._known.pop(pid, None)
                self._passed.pop(pid, None)
                self._earlier.pop(pid, None)
                self._looked.pop(pid, None)
                if pid not in self._deferred:
                    self._hints.pop(pid, None)
            for pid in expired:
                if not self._was_read(pid):  # sampled rarely: without a hint it is read as soon as it is sampled again
                    self._hints.pop(pid, None)
        until_monotonic_ns = time.monotonic_ns() - int(_KEEP_S * 1e9)
        for pid in [
            pid for pid, earlier in self._earlier.items() if earlier[-1].until_monotonic_ns < until_monotonic_ns
        ]:
            del self._earlier[pid]

    def _was_read(self, pid: int) -> bool:
        known = self._known.get(pid)
        return known is not None and known.process is not None

    def _current(self, pid: int) -> _Process | None:
        """What is known of the program that a process runs now. Takes what events said of it, and of those before."""
        known = self._known.get(pid)
        with self._hints_lock:
            read = self._looked.pop(pid, None)
            if known is None:
                if read is None and pid not in self._passed:
                    return None
                known, self._gone[pid] = self._add(pid, _Process()), time.monotonic()
            hints = [*self._passed.pop(pid, ()), self._hints.get(pid, known.hint)]
        for hint in hints:
            since = hint.since_monotonic_ns
            before = self._earlier[pid][-1].process if known.guessed and pid in self._earlier else known
            if since <= before.since_monotonic_ns:
                if hint is not known.hint:
                    self._take(hint, known)
            elif known.read_monotonic_ns > since:  # it was read since then
                if before is not known:
                    self._earlier[pid][-1] = self._earlier[pid][-1]._replace(until_monotonic_ns=since)
                known.since_monotonic_ns, known.guessed = since, False
                self._take(hint, known)
            elif known.process is None and not known.hint.comm and not known.since_monotonic_ns:
                known.since_monotonic_ns = since  # nothing was known of it
                self._take(hint, known)
            else:
                self._keep(pid, _Earlier(since, known))
                known = self._known[pid] = self._successor(known, hint)
        if read is not None and read.process != known.process and read.read_monotonic_ns > known.since_monotonic_ns:
            known = self._learn(pid, read)
        return known

    def _successor(self, known: _Process, hint: Hint) -> _Process:
        """What is known of a program that was not read: of a process that executed it, or of a forked process."""
        new = _Process(since_monotonic_ns=hint.since_monotonic_ns)
        if hint.comm:
            new.facts, new.container, new.pod = Facts(group=known.facts.group), known.container, known.pod
        self._take(hint, new)
        return new

    def _keep(self, pid: int, earlier: _Earlier) -> None:
        """Remembers a program that a process ran before. Forgets the oldest ones if there are too many."""
        kept = self._earlier.setdefault(pid, deque())
        kept.append(earlier)
        if len(kept) > MAX_PROGRAMS:
            kept.popleft()
            kept[0] = kept[0]._replace(process=_Process())
        if sum(map(len, self._earlier.values())) > MAX_EARLIER:
            most = max(self._earlier.values(), key=len)
            last = most[-1]._replace(process=_Process())
            most.clear()
            most.append(last)

    def _pass(self, pid: int, hint: Hint) -> None:
        """Keeps the hint of a program that a process does not run any more."""
        passed = self._passed.setdefault(pid, [])
        passed.append(hint)
        if len(passed) > MAX_PROGRAMS:
            passed[:2] = [Hint(since_monotonic_ns=passed[0].since_monotonic_ns)]
        if len(self._passed) > MAX_HINTS:
            del self._passed[next(iter(self._passed))]

    def _learn(self, pid: int, read: _Process) -> _Process:
        """What /proc said of the program that a process runs is what is known of it from now on."""
        known = self._known.get(pid)
        if known is not None:
            read.since_monotonic_ns = known.since_monotonic_ns
            if known.process is not None and known.process != read.process:
                read.since_monotonic_ns, read.guessed = read.read_monotonic_ns, True
                if read.process and read.process.start_ticks != known.process.start_ticks:
                    read.since_monotonic_ns = start_monotonic_ns(read.process.start_ticks)
                self._keep(pid, _Earlier(read.since_monotonic_ns, known))
        return self._add(pid, read)

    def _read(self, process: Process) -> _Process | None:
        """What /proc says; None where that is of another process or program by now, or of none any more."""
        hint = self._hints.get(process.pid, NO_HINT)
        known = _Process(process, hint=hint, read_hint=hint, read_monotonic_ns=time.monotonic_ns())
        known.facts = read_facts(process, self._config.variables, self._config.with_command_line)
        if not known.facts.complete:
            known.read_again = time.monotonic() + _AGAIN_S
        if not process.kernel:
            known.context = ContextReader(process.pid, is_gone=partial(is_another, process))
            known.context.look()
            known.container = self._containers.find(known.facts.group, process.pid)
            self._look_for_pod(known)
            now = read_process(process.pid)
            if now not in (None, process) or not (now or known.facts.comm):
                return None
        return known

    def _take(self, hint: Hint, known: _Process) -> None:
        known.hint = hint
        if (
            known.process is None and hint.parent and known.facts.group == Cgroup()
        ):  # a child is in its parent's container
            parent = self._known.get(hint.parent)
            known.facts = Facts(group=parent.facts.group if parent else read_cgroup(folder_of(hint.parent)))
            known.container = self._containers.find(known.facts.group, hint.parent)
            self._look_for_pod(known)
        known.renew()

    def _add(self, pid: int, known: _Process) -> _Process:
        known.activity = self._services.get(pid, "")
        self._known.pop(pid, None)
        self._known[pid] = known
        if len(self._known) > MAX_PROCESSES:
            del self._known[next(iter(self._known))]
        return known

    def _look_for_pod(self, known: _Process) -> None:
        group = known.facts.group
        if self._config.pods is None or not group.pod_uid:
            return
        if known.pod is None or (group.container_id and group.container_id not in known.pod.containers):
            pod = self._config.pods.find(group.pod_uid, group.container_id)
            if pod is not None and pod is not known.pod:
                known.pod = pod
                known.renew()

    def _labels(self, pid: int, tid: int, known: _Process, name: str, span_name: str = "") -> Labels | None:
        if known.base is None:
            known.base = self._base(pid, known)
        labels = known.base | {"thread_name": name}
        if span_name:
            labels[SPAN_NAME] = span_name
        labels["comm"] = labels["comm"] or name
        labels["service"] = labels["service"] or name
        if self._config.rules:
            relabeled = relabel(labels | {"__meta_tid": str(tid)}, self._config.rules)
            if relabeled is None:
                return None
            labels = relabeled
        return tuple((name, labels[name][:MAX_VALUE]) for name in sorted(labels) if labels[name])

    def _base(self, pid: int, known: _Process) -> dict[str, str]:
        facts = known.now()
        described = ProcessDescription(
            pid=pid,
            kernel=pid == 0 or (known.process is not None and known.process.kernel),
            facts=facts,
            context=known.context.attributes if known.context and facts.environment is known.facts.environment else {},
            activity=known.activity,
            container=known.container,
            pod=known.pod,
        )
        labels = process_labels(described, self._config.environment) | {"host": self._host}
        if known.process is None and pid in self._deferred:
            labels["details"] = "deferred"
        return labels | (meta_labels(described) if self._config.rules else {})
