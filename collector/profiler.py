"""Samples this host: the sampling thread.

This thread never waits for a disk or for Kafka, so that the kernel's buffers do not run full. It drains windows of
samples from the kernel; the building thread makes batches of them (batches/builder.py).
"""

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass

from collector import metrics
from collector.activity.activity_socket import ActivityReceiver
from collector.activity.thread_context import ThreadContexts
from collector.batches.builder import BatchBuilder, BuildQueue
from collector.batches.windows import DrainedWindow
from collector.bpf.sampler import Sampler
from collector.guest.pace import Pace
from collector.host import Host
from collector.settings import CollectorSettings

log = logging.getLogger(__name__)

_POLL_S = 1.0
_TURN_S = 1.0


@dataclass(frozen=True)
class _Settling:
    """A drained window. At `at` (time.monotonic), all activity that belongs to it has come."""

    window: DrainedWindow
    at: float


class Profiler:
    """Runs the parts that collector/agent.py made. Call `run` once."""

    def __init__(
        self,
        settings: CollectorSettings,
        *,
        sampler: Sampler,
        pace: Pace,
        activity: ActivityReceiver,
        contexts: ThreadContexts,
        host: Host,
        work: BuildQueue,
        builder: BatchBuilder,
    ) -> None:
        """`sampler` must be started and paused."""
        self._interval_s, self._settle_s = settings.interval, settings.settle
        self._sampler, self._pace = sampler, pace
        self._activity, self._contexts = activity, contexts
        self._host = host
        self._work, self._builder = work, builder
        pace.add_shed_listeners(host.shed, builder.shed)
        self._settling: deque[_Settling] = deque()

    def run(self, stop: threading.Event) -> None:
        """Samples until `stop` is set, then hands over the last windows."""
        self._builder.start()
        self._contexts.start()
        self._host.start()
        self._sampler.resume()
        start_monotonic_ns = time.monotonic_ns()
        turn = drain = time.monotonic()
        drain += self._interval_s
        while not stop.wait(min(_POLL_S, max(0.0, drain - time.monotonic()))):
            self._sampler.poll()
            now = time.monotonic()
            self._pass_on(now)
            if now >= turn:
                self._pace.take_turns()
                turn = now + _TURN_S
            if now >= drain:
                start_monotonic_ns = self._drain(start_monotonic_ns)
                drain = max(drain + self._interval_s, now)
        self._close(start_monotonic_ns)

    def _drain(self, start_monotonic_ns: int) -> int:
        """Ends a window; returns when the next one begins."""
        if len(self._settling) >= self._work.room():
            log.warning("batches are made too slowly; this window becomes longer")
            return start_monotonic_ns
        period_ns = self._sampler.period_ns
        samples = self._sampler.drain()
        self._pace.drained(self._builder.sampling_s, self._activity.cpu_seconds(), self._host.events_s())
        _count_stacks(self._sampler.stats())
        end_monotonic_ns = time.monotonic_ns()
        window = DrainedWindow(samples, start_monotonic_ns, end_monotonic_ns, period_ns)
        self._settling.append(_Settling(window, time.monotonic() + self._settle_s))
        return end_monotonic_ns

    def _pass_on(self, now: float) -> None:
        """Gives the building thread the windows whose activity has come."""
        while self._settling and self._settling[0].at <= now and self._work.room() > 0:
            self._work.put(self._settling.popleft().window)

    def _close(self, start_monotonic_ns: int) -> None:
        self._drain(start_monotonic_ns)
        self._sampler.pause()
        self._pace.close()
        time.sleep(self._settle_s)
        for settling in self._settling:
            self._work.put(settling.window)
        self._work.end()
        self._builder.join()  # until then it needs the host
        self._host.close()
        self._contexts.close()
        self._sampler.close()
        self._activity.close()


def _count_stacks(stats: dict[str, int]) -> None:
    for name, count in stats.items():
        if name.startswith("stack_"):
            metrics.STACKS.set_total(count, name.removeprefix("stack_"))
        elif name in ("python_no_thread", "python_cut"):
            metrics.PYTHON_STACKS.set_total(count, name.removeprefix("python_"))
