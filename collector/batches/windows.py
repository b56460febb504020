"""Makes the samples and activity of a window into messages. Does not know Kafka, nor where samples come from."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from collector import metrics
from collector.activity import activity_batch as activity
from collector.activity.intervals import ActivityIntervals
from collector.batches.clock import Clock
from collector.batches.locations import locate
from collector.bpf.samples import DrainedSamples
from collector.delivery.message_log import Message
from collector.host import Host
from collector.kernel import Kernel
from collector.labels.activity_labels import label_activity
from collector.labels.thread_labels import ThreadLabels
from collector.labels.thread_series import label
from icestream.labels.operations import OperationNames
from icestream.labels.request_labels import RequestLabels
from icestream.messages import raw_encoder
from icestream.messages.checks import Labels
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, OFF_CPU_PROFILE_TYPE, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId
from icestream.v1.raw_pb2 import RawBatch


@dataclass(frozen=True)
class DrainedWindow:
    """The samples of a window, and when it began and ended."""

    samples: DrainedSamples
    start_monotonic_ns: int
    end_monotonic_ns: int
    period_ns: int  # the CPU time that each sample stands for


QUIET_NS = 60 * 10**9
"""A host on which nothing runs sends a batch without samples this often: whoever sends nothing for longer is away."""

_MOST_ACTIVE = 2000
"""So many processes of a window are read because of their activity. More of them, made to keep the collector busy, have
the labels that events give them."""


class Windows:
    """Makes the batches of one run of a collector. For one thread."""

    def __init__(
        self,
        host_id: str,
        host: Host,
        labels: ThreadLabels,
        operations: OperationNames,
        sets: RequestLabels,
        configured_period_ns: int,
    ) -> None:
        self._host_id = host_id
        self._configured_period_ns = configured_period_ns  # the period without the CPU budget
        self._sent_monotonic_ns = time.monotonic_ns()  # end of the last window with CPU samples
        self._clock = Clock()
        self._started_unix_nano = time.time_ns()
        self._kernel = Kernel(generated=host.generated)
        self._mappings, self._runtimes = host.mappings, host.runtimes
        self._labels = labels
        self._operations, self._sets = operations, sets
        self._sequences = {RAW: 0, ACTIVITY: 0}
        self._fresh: set[int] = set()  # processes of this window that were noticed
        self.defer = False  # whether the details of new processes are read later
        self.details_s = 0.0  # CPU time that `_notice` took so far

    def look(self, pid: int) -> None:
        """Reads what /proc says of a process that was just sampled, for the window that it is in. With `defer`, it
        leaves new ones for later. For any thread."""
        process = None if self.defer and self._labels.defer(pid) else self._mappings.notice(pid)
        if process is not None:
            self._labels.look(process)

    def _notice(self, pids: Iterable[int]) -> None:
        """Reads what /proc says of processes, once per window."""
        began_s = time.thread_time()
        for pid in pids:
            if pid not in self._fresh and not (self.defer and self._labels.defer(pid)):
                self._fresh.add(pid)
                process = self._mappings.notice(pid)
                if process is not None:
                    self._labels.notice(process)
        self.details_s += time.thread_time() - began_s

    def messages(
        self,
        drained: DrainedWindow,
        intervals: ActivityIntervals,
        services: Mapping[int, str],
        dropped_samples: int = 0,
    ) -> list[Message]:
        """Makes the window's messages, activity before samples; none where nothing happened, for up to QUIET_NS.

        `intervals` has all activity that applications sent up to a moment after the window's end, `services` the names
        of their services by process. `dropped_samples` is how many samples were in windows that were given up; this
        window reports them.
        """
        started = time.perf_counter()
        offset_ns = self._update_clock()
        self._labels.declare(services)
        self._fresh.clear()
        off_cpu = drained.samples.off_cpu
        self._notice(np.unique(drained.samples.pid).tolist())
        if off_cpu is not None:
            self._notice(np.unique(off_cpu.pid).tolist())
        messages = self._activity(drained, intervals, offset_ns)
        messages += self._raw(drained, drained.samples, DEFAULT_PROFILE_TYPE, offset_ns, dropped_samples)
        if off_cpu is not None:
            messages += self._raw(drained, off_cpu, OFF_CPU_PROFILE_TYPE, offset_ns)
        ended = self._mappings.expire()
        self._labels.forget(ended)
        self._runtimes.forget(ended)
        metrics.PROCESSES.set(len(self._mappings))
        metrics.BUILD_SECONDS.observe(time.perf_counter() - started)
        return messages

    def _update_clock(self) -> int:
        steps = self._clock.steps
        offset_ns = self._clock.update()
        metrics.CLOCK_STEPS.inc(self._clock.steps - steps)
        return offset_ns

    def _activity(self, drained: DrainedWindow, intervals: ActivityIntervals, offset_ns: int) -> list[Message]:
        off_cpu = drained.samples.off_cpu
        comms = drained.samples.comms | (off_cpu.comms if off_cpu is not None else {})
        self._notice(np.unique(np.concatenate([intervals.pid, intervals.span_pid])).tolist()[:_MOST_ACTIVE])
        intervals = label_activity(intervals, self._labels, comms, self._operations, self._sets)
        if not (len(intervals.pid) or intervals.spans or intervals.dropped):
            return []
        common = ActivityBatch(
            host_id=self._host_id,
            complete_unix_nano=drained.end_monotonic_ns + offset_ns,
            clock_offset_ns=offset_ns,
        )
        parts = activity.split(intervals, offset_ns, common)
        metrics.INTERVALS.inc(len(intervals.pid))
        metrics.INTERVALS_DROPPED.inc(intervals.dropped)
        return self._to_messages(ACTIVITY, activity.finish(parts, self._next(ACTIVITY), time.time_ns()))

    def _raw(
        self,
        drained: DrainedWindow,
        samples: DrainedSamples,
        profile_type: str,
        offset_ns: int,
        dropped_samples: int = 0,
    ) -> list[Message]:
        samples, series, labels = label(samples, self._labels, self._operations)
        of_cpu = profile_type == DEFAULT_PROFILE_TYPE
        quiet = of_cpu and drained.end_monotonic_ns - self._sent_monotonic_ns >= QUIET_NS
        if not (len(samples.pid) or samples.lost or dropped_samples or quiet):
            return []
        if of_cpu:
            self._sent_monotonic_ns = drained.end_monotonic_ns
        common = RawBatch(
            host_id=self._host_id,
            profile_type=profile_type,
            period=drained.period_ns if samples.value is None else samples.followed_of,
            activity_complete_unix_nano=drained.end_monotonic_ns + offset_ns,
            activity_sequence=self._sequences[ACTIVITY],
            clock_offset_ns=offset_ns,
            lost_samples=samples.lost,
            dropped_samples=dropped_samples,
            configured_period=self._configured_period_ns if of_cpu else 0,
        )
        parts = raw_encoder.split(self._window(drained, samples, series, labels, offset_ns), common)
        (metrics.SAMPLES if of_cpu else metrics.WAITS).inc(len(samples.pid))
        (metrics.LOST if of_cpu else metrics.WAITS_LOST).inc(samples.lost)
        return self._to_messages(RAW, raw_encoder.finish(parts, self._next(RAW), time.time_ns()))

    def _window(
        self, drained: DrainedWindow, samples: DrainedSamples, series: np.ndarray, labels: list[Labels], offset_ns: int
    ) -> raw_encoder.Window:
        stacks = locate(samples, self._mappings, self._kernel, self._runtimes)
        return raw_encoder.Window(
            time_unix_nano=samples.time_monotonic_ns.astype(np.int64) + offset_ns,
            series=series,
            pid=samples.pid,
            tid=samples.tid,
            stack=stacks.row,
            context=samples.context.astype(np.int64),
            stacks=stacks,
            labels=labels,
            trace_ids=samples.trace_ids,
            span_ids=samples.span_ids,
            start_unix_nano=drained.start_monotonic_ns + offset_ns,
            end_unix_nano=drained.end_monotonic_ns + offset_ns,
            value=samples.value,
        )

    def _next(self, topic: str) -> BatchId:
        self._sequences[topic] += 1
        metrics.BATCHES.labels(topic).inc()
        return BatchId(
            collector=self._host_id, started_unix_nano=self._started_unix_nano, sequence=self._sequences[topic]
        )

    def _to_messages(self, topic: str, values: list[bytes]) -> list[Message]:
        return [Message(topic, self._host_id.encode(), value) for value in values]
