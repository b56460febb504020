"""Which samples are sent, and under which labels."""

import dataclasses

import numpy as np
import pytest

from collector import metrics
from collector.bpf.samples import Samples
from collector.labels.label_config import LabelConfig
from collector.labels.thread_labels import ThreadLabels
from collector.labels.thread_series import label
from icestream.relabel_config import parse_rules

GONE = 2**22
NAMES = {1: "main", 2: "GC", 3: "main"}


def samples(*threads: int, value: bool = False) -> Samples:
    """A sample of each thread, each with its own number as time, stack and context."""
    n = len(threads)
    filled = {
        field.name: np.zeros(0, np.uint64)
        for field in dataclasses.fields(Samples)
        if field.name.startswith(("stack_", "python_", "frames"))
    }
    rows = np.arange(n)
    return Samples(
        time_monotonic_ns=rows.astype(np.uint64),
        pid=np.full(n, GONE, np.uint32),
        tid=np.array(threads, np.uint32),
        stack=rows.astype(np.uint32),
        context=rows.astype(np.uint32),
        comms=NAMES,
        value=rows * 10 if value else None,
        **filled,  # type: ignore[arg-type]
    )


def test_threads_of_the_same_labels_are_one_series() -> None:
    sampled = samples(3, 1, 2, 1, 3)
    sent, series, labels = label(sampled, ThreadLabels("h"))
    assert sent is sampled
    assert [dict(labels[row])["thread_name"] for row in series] == ["main", "main", "GC", "main", "main"]
    assert len(labels) == 2


@pytest.mark.parametrize("value", [False, True])
def test_samples_of_dropped_threads_are_counted_and_not_sent(value: bool) -> None:
    rules = parse_rules([{"action": "drop", "source_labels": ["thread_name"], "regex": "GC"}], "here")
    before = metrics.RELABEL_DROPPED._value.get()
    sent, series, labels = label(samples(2, 1, 2, 3, value=value), ThreadLabels("h", LabelConfig(rules=rules)))
    assert sent.tid.tolist() == [1, 3]
    assert [column.tolist() for column in (sent.time_monotonic_ns, sent.stack, sent.context)] == [[1, 3]] * 3
    assert sent.value is None or sent.value.tolist() == [10, 30]
    assert (sent.value is not None) == value
    assert series.tolist() == [0, 0]
    assert len(labels) == 1
    assert metrics.RELABEL_DROPPED._value.get() - before == 2


def test_nothing_is_sent_of_nothing_and_of_what_is_all_dropped() -> None:
    rules = parse_rules([{"action": "drop"}], "here")
    assert label(samples(), ThreadLabels("h"))[2] == []
    sent, series, labels = label(samples(1, 2), ThreadLabels("h", LabelConfig(rules=rules)))
    assert (len(sent.pid), len(series), labels) == (0, 0, [])
