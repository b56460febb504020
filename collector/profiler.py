"""Samples this host and makes batches, on two threads.

The sampling thread does little and never waits for a disk or for Kafka, so that the kernel's buffers do not run full;
the building thread reads /proc and makes the messages.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from collector import metrics
from collector.activity.activity_socket import ActivityReceiver
from collector.activity.thread_context import ThreadContexts
from collector.batches.windows import Drained, Windows
from collector.bpf.off_cpu import Waits
from collector.bpf.program import ROW_PAGE_BITS
from collector.bpf.sampler import Sampler
from collector.bpf.samples import Samples
from collector.delivery.message_log import Message
from collector.guest.pace import Pace
from collector.host import Host
from collector.labels.label_config import label_config
from collector.labels.thread_labels import ThreadLabels
from collector.processes.mapped_files import FileCache
from collector.settings import CollectorSettings, host_id, host_name
from collector.symbols.symbol_files import SymbolFiles
from collector.unwind.cache import TableCache

log = logging.getLogger(__name__)

_POLL_S = 1.0
_OBSERVE_S = 1.0
_QUEUE = 256


@dataclass(frozen=True)
class _Due:
    """A window that is complete, with its activity, at `at` (time.monotonic)."""

    drained: Drained
    at: float


class Profiler:
    """Gives the messages of each window to `publish`, on the building thread. Raises SamplerError, or OSError where the
    activity socket cannot be made.

    `loaded` is called when all that needs privileges was loaded, and before any thread is started. `missing` is asked
    for the samples of windows that were given up since it was last asked.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        files: SymbolFiles,
        publish: Callable[[list[Message]], None],
        loaded: Callable[[], None] = lambda: None,
        missing: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings = settings
        self._publish = publish
        self._missing = missing
        labels = ThreadLabels(host_name(settings), label_config(settings))
        sizes = {"rows": settings.unwind_tables_mb << 20 >> ROW_PAGE_BITS}
        self._sampler = Sampler(settings.frequency, settings.loader, sizes, _waits(settings))
        self._sampler.start()
        self._sampler.pause()  # until it is known what runs here
        self._pace = Pace(settings, self._sampler)
        loaded()
        self._activity = ActivityReceiver(settings.activity_socket)
        for what in vars(self._activity.counts):
            metrics.RECEIVED.labels(what).set_function(partial(getattr, self._activity.counts, what))
        self._contexts = ThreadContexts(self._sampler.set_context, self._sampler.forget)
        opened = FileCache(files.note)
        files.held = opened.open
        tables = TableCache(settings.unwind_cache)
        self._host = Host(self._sampler.program, opened, tables, self._seen, labels.told)
        self._windows = Windows(host_id(settings), self._host, labels)
        self._settling: deque[_Due] = deque()
        self._queue: queue.Queue[int | Drained | None] = queue.Queue(_QUEUE)
        self._builder = threading.Thread(target=self._build, name="build", daemon=True)

    def run(self, stop: threading.Event) -> None:
        """Samples until `stop` is set, then publishes what there is. Once only."""
        self._builder.start()
        self._host.start()
        self._sampler.resume()
        started = time.monotonic_ns()
        observe = drain = time.monotonic()
        drain += self._settings.interval
        while not stop.wait(min(_POLL_S, max(0.0, drain - time.monotonic()))):
            self._sampler.poll()
            now = time.monotonic()
            self._pass_on(now)
            if now >= observe:
                self._pace.take_turns()
                self._look_for_contexts()
                observe = now + _OBSERVE_S
            if now >= drain:
                started = self._drain(started)
                drain = max(drain + self._settings.interval, now)
        self._close(started)

    def _seen(self, pid: int) -> None:
        """A thread of that process was sampled for the first time: it is looked at while it lives."""
        if self._queue.qsize() < _QUEUE // 2:  # windows always have room
            self._queue.put_nowait(pid)

    def _drain(self, start_ns: int) -> int:
        """Ends a window; returns when the next one begins."""
        if len(self._settling) + self._queue.qsize() >= _QUEUE:
            log.warning("batches are made too slowly; this window becomes longer")
            return start_ns
        period_ns = self._sampler.period_ns
        samples = self._sampler.drain()
        self._pace.drained()
        _count_stacks(self._sampler.stats())
        end_ns = time.monotonic_ns()
        self._contexts.observe(_processes(samples).tolist())
        drained = Drained(samples, start_ns, end_ns, period_ns)
        self._settling.append(_Due(drained, time.monotonic() + self._settings.settle))
        return end_ns

    def _pass_on(self, until: float) -> None:
        """Windows whose activity has come go to the building thread."""
        while self._settling and self._settling[0].at <= until and not self._queue.full():
            self._queue.put_nowait(self._settling.popleft().drained)

    def _look_for_contexts(self) -> None:
        for pid in self._activity.pids():
            self._contexts.notice(pid)
        self._contexts.observe()

    def _close(self, started: int) -> None:
        self._drain(started)
        self._sampler.pause()
        self._pace.close()
        time.sleep(self._settings.settle)
        for due in self._settling:
            self._queue.put(due.drained)
        self._queue.put(None)
        self._builder.join()  # it still asks the host about processes
        self._host.close()
        self._sampler.close()
        self._activity.close()

    def _build(self) -> None:
        """The building thread."""
        missing = 0
        while (item := self._queue.get()) is not None:
            try:
                if isinstance(item, Drained):
                    given_up = missing + self._missing()
                    missing = given_up + len(item.samples.pid) + item.samples.lost  # until it is handed over
                    messages = self._windows.messages(item, self._activity.take(), self._activity.services(), given_up)
                    if messages:
                        self._publish(messages)
                    missing = 0
                else:
                    self._windows.notice([item])
            except Exception:
                metrics.FAILED.inc()
                log.exception("a window could not be made into a batch")


def _waits(settings: CollectorSettings) -> Waits | None:
    return Waits(settings.off_cpu, round(settings.off_cpu_threshold_ms * 1e6)) if settings.off_cpu else None


def _processes(samples: Samples) -> np.ndarray:
    return np.unique(samples.pid if samples.off_cpu is None else np.concatenate([samples.pid, samples.off_cpu.pid]))


def _count_stacks(stats: dict[str, int]) -> None:
    for name, count in stats.items():
        if name.startswith("stack_"):
            metrics.STACKS.labels(name.removeprefix("stack_")).set(count)
        elif name in ("python_no_thread", "python_cut"):
            metrics.PYTHON_STACKS.labels(name.removeprefix("python_")).set(count)
