"""Finds the series of each sample. Leaves out the samples of threads that relabeling rules drop."""

from dataclasses import replace

import numpy as np

from collector import metrics
from collector.bpf.samples import Samples
from collector.labels.thread_labels import ThreadLabels
from icestream.messages.checks import Labels


def label(samples: Samples, known: ThreadLabels) -> tuple[Samples, np.ndarray, list[Labels]]:
    """Returns the samples to send, the row of each in the labels (int64 (n,)), and the distinct labels.

    Stacks stay as they are, even if no sample refers to them.
    """
    threads, of_sample = np.unique(
        samples.pid.astype(np.uint64) << np.uint64(32) | samples.tid.astype(np.uint64), return_inverse=True
    )
    labels: dict[Labels, int] = {}
    rows = np.full(len(threads), -1, np.int64)
    for i, thread in enumerate(threads.tolist()):
        pid, tid = thread >> 32, thread & 0xFFFFFFFF
        thread_labels = known.of(pid, tid, samples.comms.get(tid))
        if thread_labels is not None:
            rows[i] = labels.setdefault(thread_labels, len(labels))
    series = rows[of_sample]
    sent = series >= 0
    if sent.all():
        return samples, series, list(labels)
    metrics.RELABEL_DROPPED.inc(int(np.count_nonzero(~sent)))
    return _only(samples, sent), series[sent], list(labels)


def _only(samples: Samples, chosen: np.ndarray) -> Samples:
    return replace(
        samples,
        time_monotonic_ns=samples.time_monotonic_ns[chosen],
        pid=samples.pid[chosen],
        tid=samples.tid[chosen],
        stack=samples.stack[chosen],
        context=samples.context[chosen],
        value=None if samples.value is None else samples.value[chosen],
    )
