"""Gives activity the services that samples of the same threads have, and bounds how many operations these have."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from collector import metrics
from collector.activity.intervals import ActivityIntervals
from collector.labels.thread_labels import ThreadLabels
from icestream.labels.operations import OperationNames
from icestream.v1.activity_pb2 import Span

_SERVICE = "service"


def label_activity(
    intervals: ActivityIntervals, known: ThreadLabels, comms: Mapping[int, str], names: OperationNames
) -> ActivityIntervals:
    """Returns the activity to send. `comms` has the names of sampled threads, by thread ID.

    Intervals and spans of threads that relabeling rules drop are left out. A span has the service of its process's main
    thread; if a rule drops that one, of another thread that is sent.
    """
    threads, of_interval = np.unique(
        intervals.pid.astype(np.uint64) << np.uint64(32) | intervals.tid.astype(np.uint64), return_inverse=True
    )
    strings = {"": 0}
    rows = np.full(len(threads), -1, np.int64)
    of_process: dict[int, str] = {}
    for i, thread in enumerate(threads.tolist()):
        pid, tid = thread >> 32, thread & 0xFFFFFFFF
        service = _service(known, pid, tid or pid, comms)
        if service is not None:
            rows[i] = strings.setdefault(service, len(strings))
            of_process.setdefault(pid, service)
    service_row = rows[of_interval]
    sent = service_row >= 0
    metrics.INTERVALS_RELABEL_DROPPED.inc(int(np.count_nonzero(~sent)))
    of_context = np.full(len(intervals.trace_ids) // 16, -1, np.int64)
    of_context[intervals.context[sent]] = service_row[sent]
    texts = list(strings)
    operations = [
        names.limited(texts[service], intervals.strings[row]) if service >= 0 else ""
        for service, row in zip(of_context.tolist(), intervals.operation.tolist(), strict=True)
    ]
    operation = np.array([strings.setdefault(name, len(strings)) for name in operations], np.uint32)
    spans = list(_spans(intervals, known, comms, of_process, names))
    return replace(
        intervals,
        **{
            name: getattr(intervals, name)[sent]
            for name in ("start_monotonic_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context")
        },
        service=service_row[sent].astype(np.uint32),
        operation=operation,
        strings=list(strings),
        spans=[span for _, span in spans],
        span_pid=np.array([pid for pid, _ in spans], np.uint32),
    )


def _service(known: ThreadLabels, pid: int, tid: int, comms: Mapping[int, str]) -> str | None:
    """None if a rule drops the thread."""
    labels = known.labels(pid, tid, comms.get(tid))
    return None if labels is None else dict(labels).get(_SERVICE, "")


def _spans(
    intervals: ActivityIntervals,
    known: ThreadLabels,
    comms: Mapping[int, str],
    of_process: Mapping[int, str],
    names: OperationNames,
) -> Iterator[tuple[int, Span]]:
    services: dict[int, str | None] = {}
    for pid, span in zip(intervals.span_pid.tolist(), intervals.spans, strict=True):
        if pid not in services:
            service = _service(known, pid, pid, comms)
            services[pid] = of_process.get(pid) if service is None else service
        if (service := services[pid]) is not None:
            span.service, span.operation = service, names.limited(service, span.operation)
            yield pid, span
