"""Samples and intervals wait for each other, whichever comes first, and belong together only if it is certain."""

import logging
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.operators import retained
from streams.operators.retained import RetainedLimits
from streams.partition import state
from streams.partition.process import Processor
from tests.data.handwritten import START, Interval, Raw, Sample, activity, activity_id, raw_id
from tests.data.messages import WINDOW_NS, context
from tests.streams.outputs import rows

pytestmark = pytest.mark.slow

WINDOW_US = WINDOW_NS // 1000
STEPS_NS = [0, 50_000_000, -50_000_000, 3600 * 10**9]


class Partition:
    """Gives messages to a processor, and adds up what comes out by context."""

    def __init__(self, limits: RetainedLimits | None = None) -> None:
        self.processor = Processor(limits=limits)
        self.samples: list[bytes] = []
        self._offsets = {RAW: 0, ACTIVITY: 0}

    def give(self, topic: str, message: bytes) -> None:
        offset = self._offsets[topic]
        self._offsets[topic] += 1
        if topic == RAW:
            self.samples += self.processor.raw(message, raw_id(offset)).samples
        else:
            self.samples += self.processor.activity(message, activity_id(offset)).samples

    @property
    def values(self) -> "Counter[bytes]":
        found: Counter[bytes] = Counter()
        for row, value in rows(self.samples).items():
            found[row[-1]] += value
        return found

    @property
    def retained(self) -> retained.Retained:
        return self.processor.partition(0).retained


def raw_window(sequence: int, **more: object) -> bytes:
    """A window with a sample of thread 1, which promises the activity of its window."""
    fields = {"sequence": sequence, "activity_sequence": sequence, "start": START + (sequence - 1) * WINDOW_NS} | more
    return Raw([Sample(1000)], **fields).bytes()  # type: ignore[arg-type]


def activity_window(sequence: int, **more: object) -> bytes:
    """The activity that covers the window's sample, in context `sequence`."""
    start_us = (sequence - 1) * WINDOW_US
    found = [Interval(1, start_us, start_us + 5000, context(sequence))]
    fields = {"sequence": sequence, "complete": START + sequence * WINDOW_NS} | more
    return activity(found, **fields)  # type: ignore[arg-type]


@st.composite
def started(draw: st.DrawFn, start: int) -> tuple[list[tuple[str, bytes]], "Counter[bytes]"]:
    """The messages of one run of a collector, in an order in which Kafka may deliver them, and the sums by brute
    force. Its clock is set between batches; times of samples and intervals are of CLOCK_MONOTONIC, as if that were 0 at
    START."""
    intervals, number = [], 1000 * start
    for pid, tid in [(1, 1), (2, 1), (1, 2)]:
        edges = sorted(draw(st.lists(st.integers(0, 3 * WINDOW_US), max_size=8, unique=True)))
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            number += 1
            intervals.append(Interval(tid, begin, end, context(number), pid))
    samples = draw(
        st.lists(st.builds(Sample, st.integers(0, 3 * WINDOW_US - 1), tid=st.integers(1, 2), pid=st.integers(1, 2)))
    )
    steps = draw(st.lists(st.sampled_from(STEPS_NS), min_size=6, max_size=6))
    raws = []
    for window in range(3):
        begin = window * WINDOW_US
        inside = [s for s in samples if begin <= s.time_us < begin + WINDOW_US]
        moved = [Sample(s.time_us - begin, tid=s.tid, pid=s.pid) for s in inside]
        at = START + begin * 1000 + steps[window]
        promised = draw(st.integers(0, 3))
        raw = Raw(moved, sequence=window + 1, started=start, start=at, clock_offset_ns=steps[window],
                  activity_sequence=promised)  # fmt: skip
        raws.append((RAW, raw.bytes()))
    cut = draw(st.lists(st.integers(0, 2), min_size=len(intervals), max_size=len(intervals)))
    activities = []
    for batch in range(3):
        step_us = steps[3 + batch] // 1000
        moved_intervals = [
            Interval(i.tid, i.start_us + step_us, i.end_us + step_us, i.context, i.pid)
            for i, number in zip(intervals, cut, strict=True)
            if number == batch
        ]
        message = activity(
            moved_intervals, sequence=batch + 1, started=start, complete=START + steps[3 + batch],
            clock_offset_ns=steps[3 + batch],
        )  # fmt: skip
        activities.append((ACTIVITY, message))
    expected: Counter[bytes] = Counter()
    for sample in samples:
        covering = [
            i.context for i in intervals
            if (i.pid, i.tid) == (sample.pid, sample.tid) and i.start_us <= sample.time_us < i.end_us
        ]  # fmt: skip
        expected[covering[0] if covering else b""] += sample.value
    return draw(interleaved(raws, activities)), expected


@st.composite
def interleaved(draw: st.DrawFn, *sides: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """All messages, those of each side in their order."""
    left = [list(side) for side in sides]
    merged = []
    while any(left):
        merged.append(draw(st.sampled_from([side for side in left if side])).pop(0))
    return merged


@given(st.data())
def test_the_sums_of_each_trace_are_those_by_brute_force_however_raw_and_activity_interleave(
    data: st.DataObject,
) -> None:
    """Two machines that have the same ID, with the same processes and threads, send at the same time."""
    first, expected = data.draw(started(7))
    second, more = data.draw(started(8))
    partition = Partition()
    for topic, message in data.draw(interleaved(first, second)):
        partition.give(topic, message)
    assert partition.values == expected + more


@pytest.mark.parametrize(
    ("sample", "interval", "traced"),
    [
        ({}, {}, True),
        ({}, {"pid": 2}, False),
        ({}, {"tid": 2}, False),
        ({}, {"started": 8}, False),
        ({}, {"host": "other"}, False),
        ({"start": START + 50_000_000, "clock_offset_ns": 50_000_000}, {}, True),
        ({"start": START - 4_000_000}, {"clock_offset_ns": 4_000_000}, True),
        ({}, {"clock_offset_ns": -50_000_000}, False),
    ],
)
@pytest.mark.parametrize("order", [(RAW, ACTIVITY), (ACTIVITY, RAW)])
def test_a_sample_belongs_to_an_interval_of_its_process_thread_collector_and_clock(
    sample: dict[str, int], interval: dict[str, int], traced: bool, order: tuple[str, str]
) -> None:
    thread = {name: interval[name] for name in ("pid", "tid") if name in interval}
    more = {name: value for name, value in interval.items() if name not in thread}
    found = replace(Interval(1, 0, 5000, context(1)), **thread)  # type: ignore[arg-type]
    messages = {RAW: raw_window(1, **sample), ACTIVITY: activity([found], **more)}  # type: ignore[arg-type]
    partition = Partition()
    for topic in order:
        partition.give(topic, messages[topic])
    assert partition.values == {context(1) if traced else b"": 10}


def test_samples_far_ahead_of_their_activity_get_their_trace() -> None:
    partition = Partition()
    for sequence in range(1, 101):
        partition.give(RAW, raw_window(sequence))
    for sequence in range(1, 101):
        partition.give(ACTIVITY, activity_window(sequence))
    assert partition.values == {context(sequence): 10 for sequence in range(1, 101)}


def test_while_kafka_is_away_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition()
    for host in ("a", "b"):
        partition.give(RAW, raw_window(1, host=host))
    later = time.monotonic() + 3600
    monkeypatch.setattr(retained.time, "monotonic", lambda: later)
    for host in ("a", "b"):
        partition.give(RAW, raw_window(2, host=host))
    for host in ("b", "a"):
        partition.give(ACTIVITY, activity_window(1, host=host))
        partition.give(ACTIVITY, activity_window(2, host=host))
    assert partition.values == {context(1): 20, context(2): 20}


def test_what_can_no_longer_be_joined_is_forgotten() -> None:
    partition = Partition()
    for sequence in range(1, 5):
        partition.give(ACTIVITY, activity_window(sequence))
        partition.give(RAW, raw_window(sequence))
    untraced = Raw([Sample(1, tid=9)], sequence=5, activity_sequence=4, start=START + 4 * WINDOW_NS).bytes()
    partition.give(RAW, untraced)
    assert partition.retained.first_raw == 4
    partition.give(RAW, raw_window(5 + 13, activity_sequence=4))  # more than a minute later, and all activity was read
    assert partition.retained.first_raw == 5
    assert partition.retained.first_activity is None


def test_activity_that_was_promised_and_never_comes_is_not_awaited_for_good() -> None:
    partition = Partition()
    partition.give(RAW, raw_window(1))
    partition.give(RAW, raw_window(100))
    assert partition.retained.first_raw == 0
    partition.give(RAW, raw_window(123))
    assert partition.retained.first_raw == 1


def test_a_silent_collector_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition()
    partition.give(RAW, raw_window(1, host="silent"))
    partition.give(ACTIVITY, activity_window(2, host="silent"))
    now = time.monotonic()
    for sequence in range(1, 700):
        monkeypatch.setattr(retained.time, "monotonic", lambda second=sequence: now + second)
        partition.give(RAW, Raw(sequence=sequence, host="loud").bytes())
    assert (partition.retained.bytes, partition.retained.first_raw) == (0, None)


@pytest.mark.parametrize("side", [RAW, ACTIVITY])
def test_memory_is_bounded_in_bytes_and_what_is_forgotten_is_counted(side: str) -> None:
    limit = 2_000_000
    partition = Partition(RetainedLimits(bytes=limit))
    what = "samples" if side == RAW else "intervals"
    before = metrics.FORGOTTEN.labels(what)._value.get()
    threads = range(1, 1001)
    for sequence in range(1, 101):
        if side == RAW:
            samples = [Sample(tid, tid=tid) for tid in threads]
            partition.give(
                RAW, Raw(samples, sequence=sequence, activity_sequence=sequence, host=f"h{sequence}").bytes()
            )
        else:
            intervals = [Interval(tid, 0, 9, context(tid)) for tid in threads]
            partition.give(ACTIVITY, activity(intervals, host=f"h{sequence}"))
        assert partition.retained.bytes <= limit
    kept = [*partition.retained._samples.values(), *(a.intervals for a in partition.retained._activity.values())]
    arrays = [column for one in kept for column in vars(one).values() if isinstance(column, np.ndarray)]
    assert sum(column.nbytes for column in arrays) <= partition.retained.bytes
    forgotten = metrics.FORGOTTEN.labels(what)._value.get() - before
    assert forgotten + sum(map(len, kept)) == 100 * len(threads)
    assert len(kept) > 5  # the latest


def test_partitions_share_the_memory() -> None:
    processor = Processor(limits=RetainedLimits(bytes=1000))
    assert processor.partition(0).retained.budget_bytes == 1000
    assert processor.partition(1).retained.budget_bytes == 500
    processor.forget(1)
    assert processor.partition(0).retained.budget_bytes == 1000


def test_two_machines_with_one_id_are_noticed_and_a_restart_is_not(caplog: pytest.LogCaptureFixture) -> None:
    before = metrics.SHARED_IDS._value.get()
    partition = Partition()
    second = START + WINDOW_NS + 1  # when the collector was started again
    for sequence, start in [(1, 7), (2, 7)]:
        partition.give(RAW, raw_window(sequence, started=start))
    partition.give(RAW, raw_window(3, started=second))
    partition.give(RAW, Raw(sequence=3, started=7, start=START).bytes())  # late, from before the restart
    partition.give(RAW, raw_window(4, started=second))
    assert metrics.SHARED_IDS._value.get() == before
    with caplog.at_level(logging.WARNING):
        for sequence in range(4, 9):
            partition.give(RAW, raw_window(sequence, started=7))
            partition.give(RAW, raw_window(sequence + 1, started=second))
    assert metrics.SHARED_IDS._value.get() > before
    [warning] = [record.message for record in caplog.records if record.name == state.__name__]
    assert "have the ID host" in warning
