"""Finds the series of each sample. Leaves out the samples of threads that relabeling rules drop."""

from dataclasses import replace

import numpy as np

from collector import metrics
from collector.bpf.samples import DrainedSamples
from collector.labels.thread_labels import ThreadLabels
from collector.processes import changes
from icestream.clickhouse.span_operations import SPAN_NAME
from icestream.labels.operations import OperationNames
from icestream.messages.checks import Labels


def label(
    samples: DrainedSamples, known: ThreadLabels, names: OperationNames
) -> tuple[DrainedSamples, np.ndarray, list[Labels]]:
    """Returns the samples to send, the row of each in the labels (int64 (n,)), and the distinct labels: those that each
    thread had when the sample was taken.

    Stacks stay as they are, even if no sample refers to them. Names of spans are operations: `names` bounds how many of
    them a service has.
    """
    threads, of_sample = np.unique(
        samples.pid.astype(np.uint64) << np.uint64(32) | samples.tid.astype(np.uint64), return_inverse=True
    )
    # A thread is told apart from itself where its process ran another program.
    first, row = changes.group(of_sample, samples.pid, samples.time_monotonic_ns, known.changes)
    threads, times, of_sample = threads[of_sample[first]], samples.time_monotonic_ns[first], row
    spans = np.zeros(len(threads), np.intp)
    if samples.span_name is not None:
        count = 1 + len(samples.span_names)
        pairs, of_sample = np.unique(of_sample * count + samples.span_name, return_inverse=True)
        threads, times, spans = threads[pairs // count], times[pairs // count], pairs % count
    span_names = ("", *samples.span_names)
    labels: dict[Labels, int] = {}
    rows = np.full(len(threads), -1, np.int64)
    for i, (thread, time, span) in enumerate(zip(threads.tolist(), times.tolist(), spans.tolist(), strict=True)):
        pid, tid = thread >> 32, thread & 0xFFFFFFFF
        thread_labels = known.labels(pid, tid, samples.comms.get(tid), span_names[span], time)
        if thread_labels is not None:
            rows[i] = labels.setdefault(_bounded(thread_labels, names) if span else thread_labels, len(labels))
    series = rows[of_sample]
    sent = series >= 0
    if sent.all():
        return samples, series, list(labels)
    metrics.RELABEL_DROPPED.inc(int(np.count_nonzero(~sent)))
    return _only(samples, sent), series[sent], list(labels)


def _bounded(labels: Labels, names: OperationNames) -> Labels:
    by_name = dict(labels)
    span_name = names.limited(by_name.get("service", ""), by_name.get(SPAN_NAME, ""))
    return tuple((name, span_name if name == SPAN_NAME else value) for name, value in labels)


def _only(samples: DrainedSamples, chosen: np.ndarray) -> DrainedSamples:
    return replace(
        samples,
        time_monotonic_ns=samples.time_monotonic_ns[chosen],
        pid=samples.pid[chosen],
        tid=samples.tid[chosen],
        stack=samples.stack[chosen],
        context=samples.context[chosen],
        value=None if samples.value is None else samples.value[chosen],
        span_name=None if samples.span_name is None else samples.span_name[chosen],
    )
