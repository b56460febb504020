"""Samples and intervals of a partition that are retained for each other: either may come first.

A sample without a context is retained until the activity that may cover it was read, or cannot come any more. An
interval is retained until the samples that it may cover were processed. What this takes is bounded in bytes. Beyond the
bound, the oldest is forgotten and counted; samples that are forgotten stay without a trace.

Times are of the CLOCK_MONOTONIC of the host, so setting a host's clock changes nothing.
"""

import sys
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from icestream.messages.activity import ActivityColumns
from icestream.messages.raw import RawColumns
from streams import metrics
from streams.operators.attach import ThreadIntervals, join
from streams.operators.seen_batches import SeenBatches

SILENT_S = 600.0
"""A run is forgotten when others sent messages for so long, and it did not."""
_NEVER = -(2**63)
_OVERHEAD_BYTES = 2000
"""What the objects of a message take, besides its rows."""
_INTERVAL_BYTES, _SAMPLE_BYTES = 56, 40
_RUN_BYTES = 1000


class RunId(NamedTuple):
    """Identifies one start of a collector on a host. Only samples and intervals of the same run may belong together."""

    host_id: str
    collector: str
    started_unix_nano: int

    @classmethod
    def from_batch(cls, batch: RawColumns | ActivityColumns) -> "RunId":
        return cls(batch.host_id, batch.id.collector, batch.id.started_unix_nano)


@dataclass(frozen=True)
class RetainedLimits:
    """Limits of what is retained."""

    late_ns: int = 60 * 10**9  # samples wait so long for intervals that ended later, intervals for samples sent again
    missing_ns: int = 600 * 10**9  # samples wait so long for activity that was promised and does not come
    ahead_ns: int = 30 * 10**9  # activity is this far ahead of its raw batches at most, if Kafka has them
    bytes: int = 512_000_000  # of all partitions together, half of it for samples
    run_bytes: int = 128_000_000  # of what is known about runs of collectors, of all partitions together


@dataclass
class RetainedSamples:
    """The n samples of one raw message that have no context."""

    offset: int
    run_id: RunId
    profile_type: str
    end_monotonic_ns: int  # of the window
    clock_offset_ns: int  # Unix time minus CLOCK_MONOTONIC
    series: list[bytes]  # serialized Series with their IDs
    sample_series: np.ndarray  # uint32 (n,), rows of `series`
    time_unix_nano: np.ndarray  # int64 (n,)
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack_id: np.ndarray  # uint64 (n,)
    count: np.ndarray  # int32 (n,)
    value: np.ndarray  # int64 (n,)
    promised: int = 0  # the activity batch that must be read before these samples are forgotten; 0: none

    def __post_init__(self) -> None:
        self._fixed_bytes = _OVERHEAD_BYTES + sum(map(len, self.series))

    def __len__(self) -> int:
        return len(self.tid)

    @property
    def bytes(self) -> int:
        return self._fixed_bytes + _SAMPLE_BYTES * len(self)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of some rows. `rows`: any index of numpy."""
        names = ("sample_series", "time_unix_nano", "pid", "tid", "stack_id", "count", "value")
        return {name: getattr(self, name)[rows] for name in names}


@dataclass
class _RetainedIntervals:
    """The intervals of one activity message, which span [start, end)."""

    run_id: RunId
    intervals: ThreadIntervals
    start_monotonic_ns: int
    end_monotonic_ns: int

    def __post_init__(self) -> None:
        of_names = sum(map(sys.getsizeof, set(self.intervals.operation.tolist())))
        self.bytes = _OVERHEAD_BYTES + _INTERVAL_BYTES * len(self.intervals) + of_names


@dataclass
class _RetainedRun:
    """What is retained of one run, by the offsets of its messages."""

    samples: dict[int, RetainedSamples] = field(default_factory=dict)
    activity: dict[int, _RetainedIntervals] = field(default_factory=dict)
    promised: int = 0  # the last activity batch that a raw batch promised
    promised_monotonic_ns: int = _NEVER  # end of the first window that promised it
    raw_end_monotonic_ns: int = _NEVER  # of the last window
    read_monotonic_ns: int = _NEVER  # every interval that ended up to here was read
    seen_s: float = 0.0  # on the clock of messages


class Retained:
    """What is retained of one partition. `budget_bytes` bounds it; a worker shares its memory among its partitions."""

    def __init__(self, limits: RetainedLimits) -> None:
        self.budget_bytes = limits.bytes
        self.run_budget_bytes = limits.run_bytes
        self._limits = limits
        self._runs: OrderedDict[RunId, _RetainedRun] = OrderedDict()
        self._samples: OrderedDict[int, RetainedSamples] = OrderedDict()
        self._activity: OrderedDict[int, _RetainedIntervals] = OrderedDict()
        self._sample_bytes = self._activity_bytes = self._run_bytes = 0
        self._clock_s, self._now_s = 0.0, time.monotonic()

    @property
    def first_raw(self) -> int | None:
        """The offset of the first raw message of which samples are retained."""
        return next(iter(self._samples), None)

    @property
    def first_activity(self) -> int | None:
        """The offset of the first activity message of which intervals are retained."""
        return next(iter(self._activity), None)

    @property
    def bytes(self) -> int:
        return self._sample_bytes + self._activity_bytes

    @property
    def many_intervals(self) -> bool:
        """Whether there is little room for more intervals: raw batches should be processed first."""
        return self._activity_bytes > 3 * self.budget_bytes // 8

    def is_ahead(self, activity: ActivityColumns) -> bool:
        """Returns whether activity should wait for raw batches."""
        run = self._runs.get(RunId.from_batch(activity))
        raw_end = run.raw_end_monotonic_ns if run else _NEVER
        complete = activity.complete_unix_nano - activity.clock_offset_ns
        return self.many_intervals or _NEVER < raw_end < complete - self._limits.ahead_ns

    def intervals(self, raw: RawColumns) -> ThreadIntervals:
        """Returns the intervals that may cover samples of the batch."""
        start, end = raw.start_monotonic_ns, raw.end_monotonic_ns
        activity = self._run(RunId.from_batch(raw)).activity.values()
        near = [a for a in activity if a.start_monotonic_ns < end and a.end_monotonic_ns > start]
        parts = [a.intervals.overlapping(start, end) for a in near]
        return join([part for part in parts if len(part)])

    def samples(self, run_id: RunId) -> list[RetainedSamples]:
        """Returns the retained samples of a run, in the order of their offsets."""
        return list(self._run(run_id).samples.values())

    def add_activity(
        self, offset: int, activity: ActivityColumns, intervals: ThreadIntervals, seen: SeenBatches
    ) -> None:
        """Keeps the intervals of a batch. `seen`: the activity batches of its run, with this one."""
        run_id = RunId.from_batch(activity)
        run = self._run(run_id)
        if len(intervals):
            first, end = int(intervals.start_monotonic_ns.min()), int(intervals.end_monotonic_ns.max())
            self._activity[offset] = run.activity[offset] = _RetainedIntervals(run_id, intervals, first, end)
            self._activity_bytes += run.activity[offset].bytes
        if seen.complete(activity.id.sequence):
            complete = activity.complete_unix_nano - activity.clock_offset_ns
            run.read_monotonic_ns = max(run.read_monotonic_ns, complete)
        self._expire(run, seen)
        if self._activity_bytes > self.budget_bytes // 2:  # half of them at once, so that this happens rarely
            while self._activity_bytes > self.budget_bytes // 4:
                metrics.FORGOTTEN.labels("intervals").inc(len(next(iter(self._activity.values())).intervals))
                self._drop_activity(next(iter(self._activity)))

    def add_samples(self, raw: RawColumns, samples: RetainedSamples, seen: SeenBatches) -> None:
        """Keeps a processed batch's samples without a context. `seen`: the activity batches of its run."""
        run = self._run(samples.run_id)
        end = raw.end_monotonic_ns
        run.raw_end_monotonic_ns = max(run.raw_end_monotonic_ns, end)
        if raw.activity_sequence != run.promised:
            run.promised, run.promised_monotonic_ns = raw.activity_sequence, end
        # What an earlier window promised ended before this window.
        samples.promised = raw.activity_sequence if raw.start_monotonic_ns < run.promised_monotonic_ns else 0
        if seen.complete(samples.promised):
            complete = raw.activity_complete_unix_nano - raw.clock_offset_ns
            run.read_monotonic_ns = max(run.read_monotonic_ns, complete)
        if len(samples):
            self._samples[samples.offset] = run.samples[samples.offset] = samples
            self._sample_bytes += samples.bytes
        self._expire(run, seen)
        while self._sample_bytes > self.budget_bytes // 2:
            metrics.FORGOTTEN.labels("samples").inc(len(next(iter(self._samples.values()))))
            self._drop_samples(next(iter(self._samples)))

    def forget_rows(self, samples: RetainedSamples, rows: np.ndarray) -> None:
        """Forgets samples that have a context now. `rows`: bool."""
        self._sample_bytes -= samples.bytes
        for name, column in samples.columns(~rows).items():
            setattr(samples, name, column)
        self._sample_bytes += samples.bytes
        if not len(samples):
            self._drop_samples(samples.offset)

    def _run(self, run_id: RunId) -> _RetainedRun:
        """Returns what is retained of a run, which is added if it is new. Forgets the run that was silent for the
        longest time, if that was too long or if there are too many."""
        now_s = time.monotonic()
        # This clock does not count the time in which Kafka was away.
        self._clock_s, self._now_s = self._clock_s + min(now_s - self._now_s, 1.0), now_s
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _RetainedRun()
            self._run_bytes += _run_size(run_id)
        self._runs.move_to_end(run_id)
        run.seen_s = self._clock_s
        oldest_id, oldest = next(iter(self._runs.items()))
        too_many = self._run_bytes > self.run_budget_bytes and len(self._runs) > 1
        if too_many or self._clock_s - oldest.seen_s > SILENT_S:
            self._drop_run(oldest_id, oldest)
        return run

    def _drop_run(self, run_id: RunId, run: _RetainedRun) -> None:
        for offset in list(run.samples):
            self._drop_samples(offset)
        for offset in list(run.activity):
            self._drop_activity(offset)
        del self._runs[run_id]
        self._run_bytes -= _run_size(run_id)

    def _expire(self, run: _RetainedRun, seen: SeenBatches) -> None:
        read = run.read_monotonic_ns - self._limits.late_ns
        missing = run.raw_end_monotonic_ns - self._limits.missing_ns
        for offset, samples in list(run.samples.items()):
            end = samples.end_monotonic_ns
            if end <= missing or (end <= read and seen.complete(samples.promised)):
                self._drop_samples(offset)
        for offset, activity in list(run.activity.items()):
            if activity.end_monotonic_ns <= run.raw_end_monotonic_ns - self._limits.late_ns:
                self._drop_activity(offset)

    def _drop_samples(self, offset: int) -> None:
        samples = self._samples.pop(offset)
        self._sample_bytes -= samples.bytes
        del self._runs[samples.run_id].samples[offset]

    def _drop_activity(self, offset: int) -> None:
        activity = self._activity.pop(offset)
        self._activity_bytes -= activity.bytes
        del self._runs[activity.run_id].activity[offset]


def _run_size(run_id: RunId) -> int:
    return _RUN_BYTES + len(run_id.host_id) + len(run_id.collector)
