"""Tells the sampler where each process keeps the trace contexts of its threads (context_finder.py).

A process is looked at when it maps a file that publishes contexts, or a file that is new to the collector. The kernel
reports that before the dynamic linker has linked the file, so the process is looked at again a few milliseconds later,
and ever less often. Looking happens on a thread of its own, which sleeps while no such file is mapped.

A process whose contexts cannot be read two seconds after it mapped the file is counted, and named in the log.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collector import metrics
from collector.activity.context_finder import ContextFinder, ContextPublisher
from collector.bpf.program import Image, TlsPlace
from collector.bpf.sampler import SamplerError
from collector.guest.stalls import Working
from collector.labels.process_facts import read_thread_name
from collector.labels.text import clean
from collector.processes.listener import ProcessListener
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.processes.process import Process

LINKED_S = 2.0
"""A file is linked within this time after it was mapped."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.005, 30.0
"""Between looks at a process that cannot be read; each is twice the one before."""
_MAX_WARNINGS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Look:
    """What is to be done for a process; `ranges` are empty if it ended."""

    ranges: Sequence[MappedRange]
    since: float  # when it was asked for; all by time.monotonic
    due: float
    pause: float = _FIRST_PAUSE_S


class ThreadContexts(ProcessListener):
    """Works from `start` to `close`. `set_context(pid, place, image)` and `forget(pid)` are the sampler's, `open_file`
    is FileCache.open and `patiently` FileCache.patiently."""

    def __init__(
        self,
        set_context: Callable[[int, TlsPlace, Image], None],
        forget: Callable[[int], None],
        open_file: Callable[[str], int | None],
        patiently: Patiently = at_once,
    ) -> None:
        self._set_context, self._forget = set_context, forget
        self._finder = ContextFinder(open_file, patiently)
        self._changed = threading.Condition()  # guards the next four
        self._looks: dict[int, _Look] = {}
        self._looking: int | None = None  # the process that is being looked at
        self._publishers: dict[int, ContextPublisher] = {}
        self._closing = False
        self._warned: set[tuple[str, str]] = set()
        self._thread = threading.Thread(target=self._run, name="thread-contexts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns when the thread has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def publishers(self) -> dict[int, ContextPublisher]:
        """The processes that publish thread contexts."""
        with self._changed:
            return dict(self._publishers)

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        if process.pid in self._publishers or self._finder.may_publish(ranges):
            self._look_at(process.pid, ranges)

    def ended(self, pid: int) -> None:
        if pid in self._looks or pid in self._publishers or pid == self._looking:
            self._look_at(pid, ())

    def _look_at(self, pid: int, ranges: Sequence[MappedRange]) -> None:
        now = time.monotonic()
        with self._changed:
            self._looks[pid] = _Look(ranges, now, now)
            self._changed.notify()

    def _run(self) -> None:
        while (pids := self._due()) is not None:
            for pid in pids:
                with self._changed:
                    look, self._looking = self._looks.pop(pid), pid
                try:
                    with Working("thread-contexts"):
                        self._look(pid, look)
                except Exception:
                    log.exception("process %d was not looked at for thread contexts", pid)
                with self._changed:
                    self._looking = None

    def _due(self) -> list[int] | None:
        """Waits until processes are due; None when there is no more to do."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                if due := [pid for pid, look in self._looks.items() if look.due <= now]:
                    return due
                self._changed.wait(min((look.due - now for look in self._looks.values()), default=None))
        return None

    def _look(self, pid: int, look: _Look) -> None:
        before = self._publishers.get(pid)
        try:
            found = self._finder.find(pid, look.ranges)
        except OSError:  # it is gone
            found = None
        if found is not None and found.place is not None and (before is None or before[:3] != found[:3]):
            found = self._tell_sampler(pid, found)
        elif (found is None or found.place is None) and before is not None and before.place is not None:
            self._forget(pid)
        now = time.monotonic()
        late = now - look.since >= LINKED_S
        if found is not None and found.place is None and late:
            self._warn(pid, found)  # first: a reader of the count finds the reason in the log
        with self._changed:
            if found is None or (found.place is None and not late):
                self._publishers.pop(pid, None)
            else:
                self._publishers[pid] = found
            if found is not None and found.place is None:
                again = _Look(look.ranges, look.since, now + look.pause, min(2 * look.pause, _LAST_PAUSE_S))
                self._looks.setdefault(pid, again)
            readable = sum(publisher.place is not None for publisher in self._publishers.values())
            metrics.CONTEXT_PROCESSES.labels("read").set(readable)
            metrics.CONTEXT_PROCESSES.labels("unreadable").set(len(self._publishers) - readable)

    def _tell_sampler(self, pid: int, found: ContextPublisher) -> ContextPublisher:
        """Tells the sampler where the contexts are. Returns `found`, without a place if the sampler refuses it."""
        assert found.place is not None
        try:
            self._set_context(pid, found.place, found.image)
        except SamplerError as error:
            return found._replace(place=None, why=str(error))
        return found

    def _warn(self, pid: int, publisher: ContextPublisher) -> None:
        if (publisher.path, publisher.why) in self._warned or len(self._warned) >= _MAX_WARNINGS:
            return
        self._warned.add((publisher.path, publisher.why))
        log.warning(
            "process %d (%s) publishes thread contexts by %s that cannot be read: %s. Its samples have no trace",
            pid, clean(read_thread_name(pid, pid)), clean(publisher.path), publisher.why,
        )  # fmt: skip
