"""Which samples are sent, and under which labels."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from collector import metrics
from collector.bpf.samples import DrainedSamples
from collector.labels.label_config import LabelConfig
from collector.labels.thread_labels import ThreadLabels
from collector.labels.thread_series import label
from icestream.labels.operations import MANY_OPERATIONS, OperationNames
from icestream.labels.relabel_config import parse_rules

GONE = 2**22
NAMES = {1: "main", 2: "GC", 3: "main"}


def samples(*threads: int, value: bool = False, spans: Sequence[str] = ()) -> DrainedSamples:
    """A sample of each thread, each with its own number as time, stack and context; their spans have these names."""
    n = len(threads)
    filled = {
        field.name: np.zeros(0, np.uint64)
        for field in dataclasses.fields(DrainedSamples)
        if field.name.startswith(("stack_", "managed_", "frames"))
    }
    rows = np.arange(n)
    return DrainedSamples(
        time_monotonic_ns=rows.astype(np.uint64),
        pid=np.full(n, GONE, np.uint32),
        tid=np.array(threads, np.uint32),
        stack=rows.astype(np.uint32),
        context=rows.astype(np.uint32),
        comms=NAMES,
        value=rows * 10 if value else None,
        span_name=np.array([i * bool(name) for i, name in enumerate(spans, 1)], np.uint32) if spans else None,
        span_names=tuple(spans),
        **filled,  # type: ignore[arg-type]
    )


def test_threads_of_the_same_labels_are_one_series() -> None:
    sampled = samples(3, 1, 2, 1, 3)
    sent, series, labels = label(sampled, ThreadLabels("h"), OperationNames(9))
    assert sent is sampled
    assert [dict(labels[row])["thread_name"] for row in series] == ["main", "main", "GC", "main", "main"]
    assert len(labels) == 2


@pytest.mark.parametrize("value", [False, True])
def test_samples_of_dropped_threads_are_counted_and_not_sent(value: bool) -> None:
    rules = parse_rules([{"action": "drop", "source_labels": ["thread_name"], "regex": "GC"}], "here")
    before = metrics.RELABEL_DROPPED._value.get()
    sampled = samples(2, 1, 2, 3, value=value, spans=["a", "b", "", "c"])
    sent, series, labels = label(sampled, ThreadLabels("h", LabelConfig(rules=rules)), OperationNames(9))
    assert sent.tid.tolist() == [1, 3]
    assert [column.tolist() for column in (sent.time_monotonic_ns, sent.stack, sent.context)] == [[1, 3]] * 3
    assert sent.value is None or sent.value.tolist() == [10, 30]
    assert (sent.value is not None) == value
    assert [dict(labels[row])["span_name"] for row in series] == ["b", "c"]
    assert sent.span_name is not None
    assert [sent.span_names[row - 1] for row in sent.span_name.tolist()] == ["b", "c"]
    assert metrics.RELABEL_DROPPED._value.get() - before == 2


def test_nothing_is_sent_of_nothing_and_of_what_is_all_dropped() -> None:
    rules = parse_rules([{"action": "drop"}], "here")
    names = OperationNames(9)
    assert label(samples(), ThreadLabels("h"), names)[2] == []
    sent, series, labels = label(samples(1, 2), ThreadLabels("h", LabelConfig(rules=rules)), names)
    assert (len(sent.pid), len(series), labels) == (0, 0, [])


def test_a_span_s_name_is_a_label_of_its_own_samples_only() -> None:
    sampled = samples(1, 1, 2, 1, 3, 1, spans=["GET /a", "", "GET /a", "GET /b", "\x1b[2J ", " \n"])
    sent, series, labels = label(sampled, ThreadLabels("h"), OperationNames(9))
    assert sent is sampled
    found = [(dict(labels[row])["thread_name"], dict(labels[row]).get("span_name")) for row in series]
    expected = [
        ("main", "GET /a"),
        ("main", None),
        ("GC", "GET /a"),
        ("main", "GET /b"),
        ("main", "?[2J"),
        ("main", None),
    ]
    assert found == expected
    assert len(labels) == 5


def test_a_service_has_a_bounded_number_of_span_names() -> None:
    names, known = OperationNames(2), ThreadLabels("h")
    for window in (["a", "b", "c"], ["d", "a", "e"]):
        _, series, labels = label(samples(1, 1, 1, spans=window), known, names)
        found = [dict(labels[row])["span_name"] for row in series]
        assert found == [name if name in "ab" else MANY_OPERATIONS for name in window]
    assert names.replaced == 3


def test_rules_see_span_names() -> None:
    rules = parse_rules(
        [
            {"source_labels": ["span_name"], "regex": r"(GET /user)/\d+", "target_label": "span_name"},
            {"action": "drop", "source_labels": ["span_name"], "regex": "private"},
        ],
        "here",
    )
    known = ThreadLabels("h", LabelConfig(rules=rules))
    sampled = samples(1, 1, 1, 1, spans=["GET /user/1", "private", "", "GET /user/22"])
    sent, series, labels = label(sampled, known, OperationNames(1))
    assert sent.time_monotonic_ns.tolist() == [0, 2, 3]
    assert [dict(labels[row]).get("span_name") for row in series] == ["GET /user", None, "GET /user"]
    assert len(labels) == 2
