"""Gives activity the services and labels that samples of the same threads have, and bounds how many operations and sets
of labels a service has."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collector import metrics
from collector.activity.intervals import ActivityIntervals
from collector.labels.thread_labels import ThreadLabels
from icestream.labels.operations import OperationNames
from icestream.labels.request_labels import RequestLabels
from icestream.v1.activity_pb2 import Span

_SERVICE = "service"


class _Source(NamedTuple):
    """What a thread sends for."""

    service: str
    labels: str
    """As `RequestLabels` makes them."""


def label_activity(
    intervals: ActivityIntervals,
    known: ThreadLabels,
    comms: Mapping[int, str],
    names: OperationNames,
    sets: RequestLabels,
) -> ActivityIntervals:
    """Returns the activity to send. `comms` has the names of sampled threads, by thread ID.

    Intervals and spans of threads that relabeling rules drop are left out. A span has the service and labels of its
    process's main thread; if a rule drops that one, of another thread that is sent.
    """
    threads, of_interval = np.unique(
        intervals.pid.astype(np.uint64) << np.uint64(32) | intervals.tid.astype(np.uint64), return_inverse=True
    )
    strings = {"": 0}
    rows = np.full(len(threads), -1, np.int64)
    labels = np.zeros(len(threads), np.uint32)
    of_process: dict[int, _Source] = {}
    for i, thread in enumerate(threads.tolist()):
        pid, tid = thread >> 32, thread & 0xFFFFFFFF
        source = _source(known, pid, tid or pid, comms, sets)
        if source is not None:
            rows[i] = strings.setdefault(source.service, len(strings))
            labels[i] = strings.setdefault(source.labels, len(strings))
            of_process.setdefault(pid, source)
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
    spans = list(_spans(intervals, known, comms, of_process, names, sets))
    return replace(
        intervals,
        **{
            name: getattr(intervals, name)[sent]
            for name in ("start_monotonic_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context")
        },
        service=service_row[sent].astype(np.uint32),
        labels=labels[of_interval][sent],
        operation=operation,
        strings=list(strings),
        spans=[span for _, span in spans],
        span_pid=np.array([pid for pid, _ in spans], np.uint32),
    )


def _source(known: ThreadLabels, pid: int, tid: int, comms: Mapping[int, str], sets: RequestLabels) -> _Source | None:
    """None if a rule drops the thread."""
    labels = known.labels(pid, tid, comms.get(tid))
    return None if labels is None else _Source(dict(labels).get(_SERVICE, ""), sets.choose(labels))


def _spans(
    intervals: ActivityIntervals,
    known: ThreadLabels,
    comms: Mapping[int, str],
    of_process: Mapping[int, _Source],
    names: OperationNames,
    sets: RequestLabels,
) -> Iterator[tuple[int, Span]]:
    sources: dict[int, _Source | None] = {}
    for pid, span in zip(intervals.span_pid.tolist(), intervals.spans, strict=True):
        if pid not in sources:
            sources[pid] = _source(known, pid, pid, comms, sets) or of_process.get(pid)
        if (source := sources[pid]) is not None:
            span.service, span.labels = source
            span.operation = names.limited(source.service, span.operation)
            yield pid, span
