"""The state of a partition: everything that a processor remembers of it. `streams.recovery` rebuilds it.

It holds activity that samples may still need, recent samples without a context (a late interval may still cover them),
which batches came, and which nodes and locations were announced. All of it is bounded. Times are those of the hosts.
"""

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from icestream.v1.common_pb2 import BatchId
from streams.attach import Intervals, join
from streams.deduplicate import Announced
from streams.position import Position
from streams.progress import Progress

SILENT_S = 600.0
"""A host is forgotten after so long without a message."""
STARTS = 4
"""Starts remembered of each collector: after a crash, the next start sends what the last one had spooled."""


@dataclass(frozen=True)
class Limits:
    """Limits of what is remembered of each partition."""

    recent_ns: int = 60 * 10**9  # distance from their host's last window at which samples and intervals are forgotten
    recent_rows: int = 1_000_000  # samples without a context, about 50 bytes each
    intervals_per_host: int = 200_000  # about 50 bytes each
    hosts: int = 10_000
    complete: bool = False  # a job gives all activity first: forget none of it, remember no samples


@dataclass
class Recent:
    """The n samples of one raw message that have no context."""

    offset: int
    host_id: str
    profile_type: str
    end_unix_nano: int  # of the window
    series: list[bytes]  # serialized Series with their IDs
    sample_series: np.ndarray  # uint32 (n,), rows of `series`
    time_unix_nano: np.ndarray  # int64 (n,)
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack_id: np.ndarray  # uint64 (n,)
    count: np.ndarray  # int32 (n,)
    value: np.ndarray  # int64 (n,)
    arrived_s: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.tid)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of some rows. `rows`: any index of numpy."""
        names = ("sample_series", "time_unix_nano", "pid", "tid", "stack_id", "count", "value")
        return {name: getattr(self, name)[rows] for name in names}


@dataclass
class Collector:
    """One start of a collector."""

    raw: Progress = field(default_factory=Progress)
    activity: Progress = field(default_factory=Progress)
    gave_up_at: int = -1  # the last activity batch when waiting for more was given up


@dataclass
class Host:
    activity: list[tuple[int, Intervals]] = field(default_factory=list)  # with the offsets of their messages, in order
    recent: list[Recent] = field(default_factory=list)
    raw_end_unix_nano: int = 0  # of the last window
    seen_s: float = 0.0  # time.monotonic() of the last message


@dataclass
class Partition:
    """State of one partition of icestream.raw and icestream.activity."""

    limits: Limits = field(default_factory=Limits)
    announced: Announced = field(default_factory=Announced)
    hosts: OrderedDict[str, Host] = field(default_factory=OrderedDict)
    collectors: OrderedDict[str, OrderedDict[int, Collector]] = field(default_factory=OrderedDict)
    recent: deque[Recent] = field(default_factory=deque)  # of all hosts, in order
    recent_rows: int = 0
    raw_next: int = 0  # offsets below were processed
    activity_next: int = 0

    def host(self, host_id: str) -> Host:
        """Returns the host, added if it is new. Beyond the limit, the host that was silent longest is forgotten."""
        host = self.hosts.setdefault(host_id, Host())
        self.hosts.move_to_end(host_id)
        host.seen_s = time.monotonic()
        if not self.limits.complete:
            oldest = next(iter(self.hosts.values()))
            if len(self.hosts) > self.limits.hosts or host.seen_s - oldest.seen_s > SILENT_S:
                self.hosts.popitem(last=False)
        return host

    def collector(self, batch_id: BatchId) -> Collector:
        """Returns what is known about this start of a collector."""
        starts = self.collectors.setdefault(batch_id.collector, OrderedDict())
        self.collectors.move_to_end(batch_id.collector)
        if len(self.collectors) > self.limits.hosts:
            self.collectors.popitem(last=False)
        collector = starts.setdefault(batch_id.started_unix_nano, Collector())
        starts.move_to_end(batch_id.started_unix_nano)
        if len(starts) > STARTS:
            starts.popitem(last=False)
        return collector

    def add_activity(self, offset: int, host_id: str, intervals: Intervals) -> None:
        """Keeps a batch's intervals for samples to come."""
        host = self.host(host_id)
        if not len(intervals):
            return
        host.activity.append((offset, intervals))
        if not self.limits.complete:
            rows = sum(len(intervals) for _, intervals in host.activity)
            while rows > self.limits.intervals_per_host:
                rows -= len(host.activity.pop(0)[1])

    def intervals(self, host_id: str, start_unix_nano: int, end_unix_nano: int) -> Intervals:
        """Returns the intervals of a host that overlap [start_unix_nano, end_unix_nano)."""
        parts = [intervals.overlapping(start_unix_nano, end_unix_nano) for _, intervals in self.host(host_id).activity]
        return join([part for part in parts if len(part)])

    def raw_done(self, host_id: str, end_unix_nano: int, recent: Recent | None) -> None:
        """Notes that a window of a host is processed: keeps its samples without a context, forgets what is too old."""
        host = self.host(host_id)
        host.raw_end_unix_nano = end_unix_nano
        if self.limits.complete:
            return
        keep = self.limits.recent_ns
        host.activity = [(o, a) for o, a in host.activity if int(a.end_unix_nano.max()) > end_unix_nano - keep]
        if recent is not None and len(recent):
            host.recent.append(recent)
            self.recent.append(recent)
            self.recent_rows += len(recent)
        while self.recent and self._is_old(self.recent[0]):
            self._forget(self.recent[0])

    def _is_old(self, recent: Recent) -> bool:
        host = self.hosts.get(recent.host_id)
        # abs: the host's clock may have been set back.
        return (
            host is None
            or not len(recent)
            or abs(host.raw_end_unix_nano - recent.end_unix_nano) > self.limits.recent_ns
            or self.recent_rows > self.limits.recent_rows
            or time.monotonic() - recent.arrived_s > 2 * self.limits.recent_ns / 1e9
        )

    def _forget(self, recent: Recent) -> None:
        self.recent.popleft()
        self.recent_rows -= len(recent)
        host = self.hosts.get(recent.host_id)
        if host:
            host.recent = [r for r in host.recent if r is not recent]

    def claim(self, recent: Recent, rows: np.ndarray) -> None:
        """Forgets recent samples that have a context now. `rows`: bool."""
        for name, column in recent.columns(~rows).items():
            setattr(recent, name, column)
        self.recent_rows -= int(rows.sum())

    def position(self) -> Position:
        """Returns the offsets from which this state can be rebuilt, and the next ones to process."""
        raw_from = self.recent[0].offset if self.recent else self.raw_next
        activity_from = min((h.activity[0][0] for h in self.hosts.values() if h.activity), default=self.activity_next)
        return Position(raw_from, activity_from, self.raw_next, self.activity_next)
