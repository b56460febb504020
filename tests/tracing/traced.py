"""Helpers: CPU to burn, and what a collector heard."""

import itertools
import socket
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collector.activity.activity_socket import ActivityReceiver
from collector.activity.intervals import ActivityIntervals
from icestream.v1.activity_pb2 import Span
from tests.waiting import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "4bf92f3577b34da6a3ce929d0e0e4736"


def burn(milliseconds: float) -> int:
    """Uses the CPU for so long by the thread's clock; returns how much it was, in ns."""
    start = time.thread_time_ns()
    while (now := time.thread_time_ns()) < start + milliseconds * 1e6:
        sum(range(100))
    return now - start


@dataclass
class Heard:
    """Everything that came, as rows."""

    rows: list[tuple[int, int, int, str, int, int]] = field(default_factory=list)  # pid, tid, start, trace, end, cpu
    spans: list[Span] = field(default_factory=list)
    dropped: int = 0

    def thread_cpu_ns(self, trace_id: str) -> int:
        return sum(row[5] for row in self.rows if row[3] == trace_id)

    def assert_no_overlap(self) -> None:
        threads = defaultdict(list)
        for pid, tid, start, _, end, _ in self.rows:
            assert tid
            threads[pid, tid].append((start, end))
        for intervals in threads.values():
            intervals.sort()
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(intervals))


class Listener:
    """A collector's socket, and what came in by it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.receiver = ActivityReceiver(path)
        self.heard = Heard()
        self.taken: list[ActivityIntervals] = []

    def take(self) -> Heard:
        self._wait_for_what_was_sent()
        intervals = self.receiver.drain()
        assert self.receiver.counts.overlapping == 0
        self.taken.append(intervals)
        traces = np.frombuffer(intervals.trace_ids, "V16")
        for row, context in enumerate(intervals.context.tolist()):
            start = int(intervals.start_monotonic_ns[row])
            self.heard.rows.append(
                (
                    int(intervals.pid[row]),
                    int(intervals.tid[row]),
                    start,
                    traces[context].tobytes().hex(),
                    start + int(intervals.duration_ns[row]),
                    int(intervals.thread_cpu_ns[row]),
                )
            )
        self.heard.spans += intervals.spans
        self.heard.dropped += intervals.dropped
        return self.heard

    def _wait_for_what_was_sent(self) -> None:
        """The socket is a queue: when a datagram that is none has come through, so has everything before it."""
        before = self.receiver.counts.malformed
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"through?", self.path)
        wait_until(lambda: self.receiver.counts.malformed > before, lambda: "the receiver does not receive")

    def close(self) -> None:
        self.receiver.close()
