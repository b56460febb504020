"""A recovered state equals what live processing has made, also where messages are refused, late or sent again."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import ANY_TIME, DAY_NS, TimeLimits
from icestream.messages.raw import decode_raw
from icestream.topics import ACTIVITY, RAW
from icestream.v1.samples_pb2 import SampleBatch
from streams.partition import recovery
from streams.partition.process import OutputMessages, Processor
from streams.partition.recovery import InputMessage, LogEntry, Rebuilding, RecoveryPlan
from tests.data.handwritten import START, Interval, Raw, Sample, activity, activity_id, raw_id
from tests.data.messages import WINDOW_NS, context
from tests.streams.outputs import Row, rows

pytestmark = pytest.mark.slow

WINDOW_US = WINDOW_NS // 1000
TIMES = TimeLimits(late_ns=30 * DAY_NS, early_ns=DAY_NS).collected(START // 10**6)
ABSURD_NS = 400 * DAY_NS
"""Whoever took such a time for real would forget all that is retained of its host."""


@st.composite
def windows(draw: st.DrawFn) -> list[InputMessage]:
    """Messages of two hosts in an order in which Kafka may deliver them, some sent again, some late, some absurd."""
    made: dict[str, list[bytes]] = {RAW: [], ACTIVITY: []}
    for host in ("a", "b"):
        for number in range(1, draw(st.integers(2, 7))):
            at = (number - 1) * WINDOW_US
            window = Raw(
                [Sample(n * 1000, tid=n) for n in range(1, 4)],
                sequence=number,
                activity_sequence=draw(st.integers(0, number)),
                start=START + at * 1000,
                host=host,
            )
            tids = draw(st.sets(st.integers(1, 3)))
            found = [Interval(tid, at, at + 5000, context(100 * number + tid)) for tid in tids]
            complete = START + number * WINDOW_NS
            made[RAW].append(window.bytes())
            made[ACTIVITY].append(activity(found, sequence=number, host=host, complete=complete))
            if draw(st.integers(0, 4)) == 0:
                far = {"sequence": 50 + number, "host": host}
                made[RAW].append(Raw([Sample(1)], start=START + ABSURD_NS, activity_sequence=1, **far).bytes())  # type: ignore[arg-type]
                made[ACTIVITY].append(activity([], complete=START + ABSURD_NS, **far))  # type: ignore[arg-type]
    for messages in made.values():
        again = draw(st.lists(st.sampled_from(messages), max_size=4))
        places = draw(st.lists(st.integers(0, len(messages)), min_size=len(again), max_size=len(again)))
        for place, message in zip(places, again, strict=True):
            messages.insert(place, message)
        if draw(st.booleans()):  # late ones
            place = draw(st.integers(0, len(messages) - 1))
            messages.append(messages.pop(place))
    left = {topic: list(enumerate(messages)) for topic, messages in made.items()}
    merged = []
    while any(left.values()):
        topic = draw(st.sampled_from([topic for topic, messages in left.items() if messages]))
        merged.append(InputMessage(topic, *left[topic].pop(0), TIMES))
    return merged


@dataclass
class Worker:
    """Processes messages, and keeps what a sink keeps: each batch once."""

    processor: Processor = field(default_factory=Processor)
    log: list[LogEntry] = field(default_factory=list)
    stored: dict[tuple[str, bytes, int], bytes] = field(default_factory=dict)

    def process(self, message: InputMessage) -> None:
        state = self.processor.partition(0)
        if message.offset < (state.raw_next if message.topic == RAW else state.activity_next):
            return
        try:
            if message.topic == RAW:
                outputs = self.processor.raw_columns(decode_raw(message.value, message.times), raw_id(message.offset))
            else:
                columns = decode_activity(message.value, message.times)
                outputs = self.processor.activity_columns(columns, activity_id(message.offset))
        except BadMessage:
            return
        self._publish(outputs)

    def _publish(self, outputs: OutputMessages) -> None:
        for value in outputs.samples:
            source = SampleBatch.FromString(value).source
            self.log.append(LogEntry(source, outputs.position))
            self.stored.setdefault((source.topic, source.batch.SerializeToString(), source.part), value)

    def successor(self, messages: list[InputMessage], committed: dict[str, int]) -> "Worker":
        """Whoever takes over once `messages` were processed."""
        plan = recovery.make_plan(self.log[-recovery.TAIL :], committed[RAW], committed[ACTIVITY])
        after = Worker(log=list(self.log), stored=dict(self.stored))
        rebuilding = Rebuilding(plan, after.processor, 0, "cluster")
        raw = [m for m in messages if m.topic == RAW and plan.raw_from <= m.offset < plan.raw_next]
        inputs = [m for m in messages if m.topic == ACTIVITY and plan.activity_from <= m.offset < plan.activity_next]
        for message in recovery.in_order(plan, raw, inputs):
            rebuilding.add(message)
        rebuilding.finish()
        return after

    def retained(self) -> tuple[dict[int, list[int]], set[int]]:
        """What is kept for the join: rows of samples by their messages' offsets, and offsets of activity."""
        kept = self.processor.partition(0).retained
        return {offset: one.tid.tolist() for offset, one in kept._samples.items()}, set(kept._activity)

    def rows(self) -> "Counter[Row]":
        return rows(list(self.stored.values()))


@st.composite
def takeovers(draw: st.DrawFn) -> tuple[Worker, Worker, list[InputMessage]]:
    """A worker that goes on, another one that takes over from it, and what both have not got yet."""
    messages = draw(windows())
    cut = draw(st.integers(0, len(messages)))
    done, left = messages[:cut], messages[cut:]
    worker = Worker()
    for message in done:
        worker.process(message)
    ends = {topic: sum(message.topic == topic for message in done) for topic in (RAW, ACTIVITY)}
    committed = {topic: draw(st.integers(0, end)) for topic, end in ends.items()}
    again = [message for message in done if message.offset >= committed[message.topic]]
    return worker, worker.successor(done, committed), again + left


@given(takeovers())
def test_it_retains_and_publishes_what_the_worker_before_would_have(
    takeover: tuple[Worker, Worker, list[InputMessage]],
) -> None:
    before, after, left = takeover
    if after.log:
        state = after.processor.partition(0)
        samples, kept = before.retained()
        recovered, recovered_activity = after.retained()
        assert recovered == samples
        assert {offset for offset in kept if offset < state.activity_next} == recovered_activity
    for message in left:
        before.process(message)
        after.process(message)
    assert after.rows() == before.rows()


@pytest.mark.parametrize("limits", [(1, 1, 2), (2, 3, 6), (3, 1, 10), (100, 2, 100), (100, 100, 3)])
def test_what_it_leaves_out_gives_no_sample_two_traces(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int, int]
) -> None:
    for name, limit in zip(("MAX_RAW", "MAX_ACTIVITY", "TAIL"), limits, strict=True):
        monkeypatch.setattr(recovery, name, limit)

    @given(takeovers())
    def check(takeover: tuple[Worker, Worker, list[InputMessage]]) -> None:
        before, after, left = takeover
        for message in left:
            before.process(message)
            after.process(message)
        published = Counter(entry.source.batch.SerializeToString() for entry in after.log if entry.source.topic == RAW)
        if max(published.values(), default=0) <= 1:  # one that is published twice may be corrected twice
            assert min(after.rows().values(), default=0) >= 0
        assert without_trace(after.rows()) == without_trace(before.rows())

    check()


def without_trace(found: "Counter[Row]") -> "Counter[tuple[int, ...]]":
    """The values of samples, whatever their traces."""
    summed: Counter[tuple[int, ...]] = Counter()
    for row, value in found.items():
        summed[row[:-1]] += value
    return summed


def test_nothing_is_processed_again_where_nothing_was_published() -> None:
    assert recovery.make_plan([], 5, 7) == RecoveryPlan(activity_from=0, activity_next=7, raw_committed=5)


def test_times_that_live_processing_refused_are_refused_again() -> None:
    worker = Worker()
    good = InputMessage(RAW, 0, Raw([Sample(1000)], activity_sequence=1).bytes(), TIMES)
    absurd = Raw([Sample(1)], sequence=2, activity_sequence=1, start=START + ABSURD_NS).bytes()
    messages = [
        good,
        InputMessage(RAW, 1, absurd, TIMES),
        InputMessage(RAW, 2, Raw(sequence=3, start=START).bytes(), TIMES),
    ]
    for message in messages:
        worker.process(message)
    after = worker.successor(messages, {RAW: 0, ACTIVITY: 0})
    assert after.retained() == worker.retained() == ({0: [1]}, set())
    careless = worker.successor(
        [InputMessage(m.topic, m.offset, m.value, ANY_TIME) for m in messages], {RAW: 0, ACTIVITY: 0}
    )
    assert careless.retained() != worker.retained()
