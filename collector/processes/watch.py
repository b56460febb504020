"""Watches processes: one thread that waits for the kernel's events, and for other descriptors.

It decodes events at once, within about a millisecond, while that takes at most a share of one CPU (after a pause, a
burst of 0.25 s). When it would take more, it reads events every 40 ms and leaves them undecoded until somebody asks
about their process. When it is told to rest, it wakes ten times a second, for events and the other descriptors alike.
"""

import logging
import os
import select
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from collector.generated_code import GeneratedCode
from collector.guest.priority import run_at_once
from collector.guest.stalls import Working
from collector.processes.mappings import ProcessMappings
from collector.processes.perf_ring import Rings
from collector.processes.process_events import EventRecord, KernelCode, Records, parse

log = logging.getLogger(__name__)

T = TypeVar("T", EventRecord, KernelCode)
_TIME = attrgetter("time_monotonic_ns")

BUDGET = 0.005
"""CPU seconds a second for decoding events at once."""

EVENT_S = 2e-6
"""About what the kernel takes to make an event, in the process that it is about."""

_BURST_S = 0.25
_RESUME_S = 0.02
_GATHER_S = 0.001  # from the first event to reading: a program that starts maps several files, and lives for 50 ms
_PAUSE_S = 0.04
_SELDOM_S = 1.0  # for events that do not wake us: a fork or an exit alone
_REST_S = 0.1
_FOLLOW_CPUS_S = 5.0


class Watcher:
    """Gives events to `mappings`, and those about the kernel's own code to `generated`, from `start` to `close`. Call
    `add` for other descriptors before `start`."""

    def __init__(
        self,
        mappings: ProcessMappings,
        budget: float = BUDGET,
        ring_bytes: int = 0,
        generated: GeneratedCode | None = None,
    ) -> None:
        self._mappings = mappings
        self._generated = generated
        self._budget = budget
        self._rings = Rings(ring_bytes)
        self._sources: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self._ready = select.epoll()  # of the rings alone
        self._stop, self._stopping = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._saved_s = _BURST_S  # CPU time that may still be used at once
        self._began = self._due = time.monotonic()  # the last reading; when to read at the latest
        self._later: list[EventRecord] = []  # read, but not given to `mappings` yet
        self._later_code: list[KernelCode] = []  # or to `generated`
        self._warned = ""  # the last warning
        self.eager = True  # whether events are decoded at once
        self.resting = False  # whether it is to wake rarely; may be set at any time
        self.records = 0  # read so far
        self.lost = 0  # records that the kernel had no room for
        self.cpu_s = 0.0  # of the thread, so far

    @property
    def events_s(self) -> float:
        """CPU time that the kernel took for events so far."""
        return (self.records + self.lost) * EVENT_S

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Calls `callback` on the watching thread while `fd` is readable."""
        self._sources[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def start(self) -> None:
        """Starts the thread. Watches the other descriptors even where the kernel reports no events."""
        self._follow_cpus()
        self._epoll.register(self._ready.fileno(), select.EPOLLIN)
        self._epoll.register(self._stop, select.EPOLLIN)
        self._thread.start()

    def close(self) -> None:
        """Returns when the thread has ended."""
        os.write(self._stopping, b"x")
        if self._thread.is_alive():
            self._thread.join()
        self._rings.close()
        self._ready.close()
        self._epoll.close()
        os.close(self._stop)
        os.close(self._stopping)

    def _run(self) -> None:
        run_at_once()
        followed = time.monotonic()
        while True:
            resting = self.resting
            if resting:
                self._rest()
            ready = {fd for fd, _ in self._epoll.poll(0 if resting else self._wait_s(), 64)}
            if self._stop in ready:
                return
            sources = ready & self._sources.keys()
            if self._ready.fileno() in ready:
                self._hush()
                if not sources:
                    time.sleep(_GATHER_S)
            if ready or time.monotonic() >= self._due:
                self._guarded(self._read)  # before the callbacks, so that they know the latest events
            for fd in sources:
                self._guarded(self._sources[fd])
            if time.monotonic() >= followed + _FOLLOW_CPUS_S:
                followed = time.monotonic()
                self._guarded(self._follow_cpus)
            self.cpu_s = time.thread_time()

    def _rest(self) -> None:
        """Waits for a while, or until it is told to stop."""
        waiting = select.poll()  # select() takes no descriptors above 1,023
        waiting.register(self._stop, select.POLLIN)
        waiting.poll(_REST_S * 1e3)

    def _wait_s(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def _read(self) -> None:
        """Reads the events up to now and gives them to `mappings` in the order of their times, across CPUs."""
        began, began_s = time.monotonic(), time.thread_time()
        self._due = began + (_SELDOM_S if self.eager else _PAUSE_S)
        self._hush()
        until_monotonic_ns = time.monotonic_ns()
        read = parse(self._rings.read())
        records, self._later = _up_to(until_monotonic_ns, [*self._later, *read.records])
        kernel_code, self._later_code = _up_to(until_monotonic_ns, [*self._later_code, *read.kernel_code])
        if self._later or self._later_code:
            self._due = began
        self.records += len(read.records)
        self.lost += read.lost
        whole = Records(records, read.lost, read.lost_monotonic_ns, kernel_code)
        if self._generated is not None:
            self._generated.apply(whole)
        self._mappings.apply(whole, self.eager)
        self._pace(began - self._began, time.thread_time() - began_s)
        self._began = began

    def _hush(self) -> None:
        """Until the rings are read, nobody needs to wake us again for those that did."""
        self._rings.hush({fd for fd, _ in self._ready.poll(0, 64)})

    def _pace(self, passed_s: float, used_s: float) -> None:
        """Decides whether events are decoded at once."""
        self._saved_s = max(-_RESUME_S, min(_BURST_S, self._saved_s + self._budget * passed_s) - used_s)
        eager = self._saved_s > (0 if self.eager else _RESUME_S) and not self.resting
        if eager != self.eager:
            self.eager = eager
            self._epoll.modify(self._ready.fileno(), select.EPOLLIN if eager else 0)
            self._rings.ring(eager)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Calls a function, and logs its errors, so that the thread continues."""
        try:
            with Working("watch"):
                call()
        except Exception:
            log.exception("watching processes failed")
            time.sleep(_PAUSE_S)  # the next call may fail at once, too

    def _follow_cpus(self) -> None:
        """Reads the events of CPUs that came online, too. What happened there before is lost."""
        opened: list[int] = []
        try:
            self._rings.follow_cpus(opened.append)
            self._mappings.followed = True
        except OSError as error:
            self._mappings.followed = False
            if str(error) != self._warned:
                log.warning("processes that start on some CPUs are only read from /proc: %s", error)
            self._warned = str(error)
        for fd in opened:
            self._ready.register(fd, select.EPOLLIN)
        if opened and self._thread.is_alive():
            missed = Records([], 1, time.monotonic_ns())
            self._mappings.apply(missed)
            if self._generated is not None:
                self._generated.apply(missed)


def _up_to(until_monotonic_ns: int, records: list[T]) -> tuple[list[T], list[T]]:
    """Returns the records up to a time, in the order of their times, and the others."""
    records.sort(key=_TIME)
    count = bisect_right(records, until_monotonic_ns, key=_TIME)
    return records[:count], records[count:]
