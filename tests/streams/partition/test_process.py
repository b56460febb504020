"""Invariants of the whole processor, with random batches."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import packed
from icestream.messages.raw import RawColumns, decode_raw
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from streams.partition.process import Operators, Processor
from tests.data.handwritten import MAPPINGS, START, Interval, Raw, Sample, activity, activity_id, raw_id
from tests.data.messages import WINDOW_NS, context
from tests.data.strategies import intervals, raws
from tests.icestream import ids_reference as reference
from tests.streams.outputs import Row, rows, stacks

pytestmark = pytest.mark.slow

NONE = b""


def expected_location(raw: Raw, location: int) -> int:
    mapping, address = raw.locations[location]
    kind = raw.mappings[mapping]
    if kind.kind == Mapping.NAMED:
        return reference.named("f" if address % 2 == 0 else "g", "file.js", address % 2**31)
    return reference.location(reference.mapping(kind.build_id, kind.file), address)


def expected_nodes(raw: Raw, stack: int) -> list[int]:
    return reference.nodes([expected_location(raw, row) for row in reversed(raw.stacks[stack])])


def _with_stack_ids(raw: Raw, stack_ids: list[int]) -> bytes:
    return raw.bytes() + packed.serialize(RawBatch(), {"stack_id": np.array(stack_ids, np.uint64)})


def expected_rows(raw: Raw, intervals: list[Interval]) -> "Counter[Row]":
    """By brute force: every sample, every interval."""
    expected: Counter[Row] = Counter()
    for sample in raw.samples:
        time_us = (raw.start - START) // 1000 + sample.time_us
        covering = [i.context for i in intervals if i.tid == sample.tid and i.start_us <= time_us < i.end_us]
        at = raw.contexts[sample.context - 1] if sample.context else covering[0] if covering else NONE
        nodes = expected_nodes(raw, sample.stack)
        series = reference.series(raw.series[sample.series])
        key = ((START // 1000 + time_us) // 1000, series, 100, sample.tid, nodes[-1] if nodes else 0, at)
        expected[key] += sample.value
    return Counter({key: value for key, value in expected.items() if value})


@given(raws())
def test_ids_and_values_are_the_reference_ones(raw: Raw) -> None:
    outputs = Processor().raw(raw.bytes(), raw_id())
    assert rows(outputs.samples) == expected_rows(raw, [])
    nodes, locations = stacks(outputs.stacks)
    expected = {}
    for stack, frames in enumerate(raw.stacks):
        chain = expected_nodes(raw, stack)
        places = [expected_location(raw, row) for row in reversed(frames)]
        expected.update(zip(chain, zip([0, *chain], places, strict=False), strict=True))
    assert nodes == expected
    assert set(locations) == {location for _, location in nodes.values()}


@given(raws())
def test_ids_of_stacks_that_the_sender_gave_change_nothing(raw: Raw) -> None:
    given_ids = [(expected_nodes(raw, stack) or [0])[-1] for stack in range(len(raw.stacks))]
    outputs = Processor().raw(_with_stack_ids(raw, given_ids), raw_id())
    alone = Processor().raw(raw.bytes(), raw_id())
    assert (outputs.samples, outputs.stacks) == (alone.samples, alone.stacks)


@given(raws(), st.data())
def test_wrong_ids_of_stacks_concern_only_who_gave_them(raw: Raw, data: st.DataObject) -> None:
    right = [(expected_nodes(raw, stack) or [0])[-1] for stack in range(len(raw.stacks))]
    own = st.integers(1, 2**64 - 1) | st.sampled_from(right)
    given_ids = data.draw(st.lists(own, min_size=len(right), max_size=len(right)))
    processor, others = Processor(), Processor()
    lied = processor.raw(_with_stack_ids(raw, given_ids), raw_id())
    used = {row[4] for row in rows(lied.samples)}
    assert used <= {0, *given_ids, *right}
    nodes, _ = stacks(lied.stacks)
    honest = replace(raw, host="honest", started=8)
    after = processor.raw(honest.bytes(), raw_id(1))
    alone = others.raw(honest.bytes(), raw_id(1))
    assert rows(after.samples) == rows(alone.samples)
    after_nodes, after_locations = stacks(after.stacks)
    alone_nodes, alone_locations = stacks(alone.stacks)
    assert nodes | after_nodes == alone_nodes
    assert stacks(lied.stacks)[1] | after_locations == alone_locations


def test_samples_of_a_wrong_id_do_not_depend_on_what_a_worker_knows() -> None:
    raw = Raw([Sample(1)], [[0], [1]], [(1, 0x10), (1, 0x20)])
    liar = _with_stack_ids(replace(raw, host="liar", started=8), [expected_nodes(raw, 1)[-1], 0])
    fresh, informed = Processor(), Processor()
    informed.raw(raw.bytes(), raw_id())
    assert fresh.raw(liar, raw_id(1)).samples == informed.raw(liar, raw_id(1)).samples


@given(raws(activity_sequence=1), intervals())
def test_the_join_gives_each_sample_the_interval_that_covers_it(raw: Raw, found: list[Interval]) -> None:
    processor = Processor()
    processor.activity(activity(found), activity_id())
    assert rows(processor.raw(raw.bytes(), raw_id()).samples) == expected_rows(raw, found)


@given(st.data())
def test_late_activity_ends_in_the_same_rows_as_activity_in_time(data: st.DataObject) -> None:
    raws_made = [replace(data.draw(raws()), sequence=n, start=START + (n - 1) * WINDOW_NS) for n in (1, 2, 3)]
    found = data.draw(intervals())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), min_size=2, max_size=2)))
    batches = [found[: cuts[0]], found[cuts[0] : cuts[1]], found[cuts[1] :]]
    messages = [(True, raw.bytes()) for raw in raws_made]
    activities = [(False, activity(some, sequence=n)) for n, some in enumerate(batches, 1)]
    order = sorted(data.draw(st.permutations(range(6)))[:3])
    for place, message in zip(order, activities, strict=True):
        messages.insert(place, message)
    processor = Processor()
    samples = []
    for offset, (is_raw, message) in enumerate(messages):
        if is_raw:
            samples += processor.raw(message, raw_id(offset)).samples
        else:
            corrections = processor.activity(message, activity_id(offset)).samples
            assert sum(sum(SampleBatch.FromString(m).sample_value) for m in corrections) == 0
            assert sum(sum(SampleBatch.FromString(m).sample_count) for m in corrections) == 0
            samples += corrections
    expected: Counter[Row] = Counter()
    for raw in raws_made:
        expected.update(expected_rows(raw, found))
    assert rows(samples) == Counter({key: value for key, value in expected.items() if value})


@given(raws(activity_sequence=1), intervals())
def test_activity_before_all_raw_needs_no_corrections(raw: Raw, found: list[Interval]) -> None:
    processor = Processor()
    processor.activity(activity(found), activity_id())
    assert rows(processor.raw(raw.bytes(), raw_id()).samples) == expected_rows(raw, found)
    assert processor.activity(activity(found, sequence=2), activity_id(1)).samples == []


@given(raws())
def test_what_comes_twice_counts_once(raw: Raw) -> None:
    processor = Processor()
    first = processor.raw(raw.bytes(), raw_id(0))
    again = processor.raw(raw.bytes(), raw_id(1))
    assert first.samples
    assert (again.samples, again.stacks) == ([], [])


@given(st.data())
def test_the_same_messages_give_the_same_bytes(data: st.DataObject) -> None:
    raw, found = data.draw(raws()), data.draw(intervals())
    runs = []
    for _ in range(2):
        processor = Processor()
        outputs = [processor.raw(raw.bytes(), raw_id()), processor.activity(activity(found), activity_id())]
        runs.append([(o.stacks, o.samples, o.position) for o in outputs])
    assert runs[0] == runs[1]


@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_stacks_and_samples_in_a_batch_changes_nothing(data: st.DataObject, random: random.Random) -> None:
    raw = data.draw(raws())
    order = list(range(len(raw.stacks)))
    random.shuffle(order)
    samples = [replace(sample, stack=order.index(sample.stack)) for sample in raw.samples]
    random.shuffle(samples)
    other = replace(raw, stacks=[raw.stacks[row] for row in order], samples=samples)
    outputs = [Processor().raw(batch.bytes(), raw_id()) for batch in (raw, other)]
    assert rows(outputs[0].samples) == rows(outputs[1].samples)
    assert stacks(outputs[0].stacks) == stacks(outputs[1].stacks)


@given(raws(), raws())
def test_a_day_later_and_elsewhere_all_is_announced_again(first: Raw, second: Raw) -> None:
    processor = Processor()
    announced = stacks(processor.raw(first.bytes(), raw_id()).stacks)
    same_day = stacks(processor.raw(replace(first, sequence=2).bytes(), raw_id(1)).stacks)
    assert same_day == ({}, {})
    tomorrow = replace(first, sequence=3, start=START + 86_400 * 10**9)
    assert stacks(processor.raw(tomorrow.bytes(), raw_id(2)).stacks) == announced
    elsewhere = replace(first, host="other")
    assert stacks(processor.raw(elsewhere.bytes(), raw_id(0, partition=1)).stacks) == announced
    more = stacks(processor.raw(replace(second, sequence=4).bytes(), raw_id(3)).stacks)
    assert not set(more[0]) & set(announced[0])


def test_outputs_name_their_source() -> None:
    raw = Raw([Sample(1_000_000, tid=3)])
    processor = Processor()
    outputs = processor.raw(raw.bytes(), raw_id(17, partition=2))
    late = processor.activity(activity([Interval(3, 0, 2_000_000, context(9))]), activity_id(23, partition=2))
    sources = [
        SampleBatch.FromString(outputs.samples[0]).source,
        StackBatch.FromString(outputs.stacks[0]).source,
        SampleBatch.FromString(late.samples[0]).source,
    ]
    assert [(s.cluster, s.topic, s.partition, s.offset, s.part, s.parts) for s in sources] == [
        ("cluster", "icestream.raw", 2, 17, 0, 1),
        ("cluster", "icestream.raw", 2, 17, 0, 1),
        ("cluster", "icestream.activity", 2, 23, 0, 1),
    ]
    assert sources[0].batch.sequence == 1
    assert outputs.key == b"host"


def test_large_batches_are_split_and_nothing_is_lost_or_shared() -> None:
    samples = [Sample(i % 4_999_999, stack=i % 900, tid=i % 7 + 1, series=i % 2) for i in range(18_000)]
    big = "ü" * 900
    labels = tuple({f"label{j}": big, "service": str(i)} for i, j in [(0, 1), (1, 2)])
    locations = [(3, 2 * i) for i in range(900)]
    raw = Raw(samples, [[i] for i in range(900)], locations, labels)
    raw_bytes = raw.bytes()
    late = activity([Interval(tid, 0, 5_000_000, context(tid)) for tid in range(1, 8)])
    processor = Processor()
    outputs = processor.raw(raw_bytes, raw_id())
    corrections = processor.activity(late, activity_id())
    assert len(corrections.samples) > 1  # twice as many rows
    for messages in (outputs.samples, corrections.samples):
        parts = [SampleBatch.FromString(message).source for message in messages]
        assert [(s.part, s.parts) for s in parts] == [(i, len(parts)) for i in range(len(parts))]
        assert all(len(message) <= 900_000 for message in messages)
    found = rows(outputs.samples + corrections.samples)
    assert sum(found.values()) == sum(sample.value for sample in samples)
    assert found == expected_rows(raw, [Interval(tid, 0, 5_000_000, context(tid)) for tid in range(1, 8)])


def test_many_long_names_are_split_over_announcements() -> None:
    function, file = "f" * 5000, "p" * 5000
    raw = Raw([Sample(1)], [list(range(800))], [(3, 2 * i) for i in range(800)])
    message = raw.message()
    message.strings[1], message.strings[3] = function, file
    outputs = Processor().raw(packed.serialize(message, raw.columns()), raw_id())
    assert len(outputs.stacks) > 1
    assert all(len(m) <= 900_000 for m in outputs.stacks)
    nodes, locations = stacks(outputs.stacks)
    assert len(nodes) == len(locations) == 800
    assert set(locations.values()) == {(function[:1024],)}


def test_operators_can_be_replaced() -> None:
    def rename(raw: RawColumns) -> RawColumns:
        return replace(raw, series=[(("service", "renamed"),)])

    processor = Processor(Operators(change=rename))
    batch = SampleBatch.FromString(processor.raw(Raw([Sample(1)]).bytes(), raw_id()).samples[0])
    assert [(label.name, label.value) for label in batch.series[0].labels] == [("service", "renamed")]


def test_a_batch_without_samples_still_leaves_its_trace_in_the_log() -> None:
    outputs = Processor().raw(Raw().bytes(), raw_id(4))
    assert [SampleBatch.FromString(message).source.offset for message in outputs.samples] == [4]


def test_only_promised_activity_is_waited_for() -> None:
    processor = Processor()
    raw = decode_raw(Raw([Sample(1)], activity_sequence=2).bytes())
    assert processor.awaits_activity(raw, 0)
    processor.activity(activity([], sequence=1), activity_id(0))
    assert processor.awaits_activity(raw, 0)
    processor.activity(activity([], sequence=2), activity_id(1))
    assert not processor.awaits_activity(raw, 0)
    later = decode_raw(Raw([Sample(1)], sequence=2, activity_sequence=5).bytes())
    assert processor.awaits_activity(later, 0)
    processor.activity_is_absent(later, 0)
    assert not processor.awaits_activity(later, 0)
    assert processor.awaits_activity(decode_raw(Raw([Sample(1)], sequence=3, activity_sequence=6).bytes()), 0)
    assert not processor.awaits_activity(decode_raw(Raw([Sample(1)], activity_sequence=0, started=8).bytes()), 0)


def test_no_activity_is_waited_for_where_there_is_no_room_for_it_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor = Processor()
    processor.activity(activity([Interval(1, 0, 10, context(1))], sequence=1), activity_id(0))
    processor.partition(0).retained.budget_bytes = 0
    raw = decode_raw(Raw([Sample(1)], activity_sequence=2).bytes())
    assert not processor.awaits_activity(raw, 0)
    assert not processor.awaits_activity(raw, 0)
    assert len(caplog.messages) == 1
    assert "ICESTREAM_ATTACH_MEMORY_MB" in caplog.messages[0]


def test_samples_say_what_their_raw_batch_says_of_its_window_once() -> None:
    said = RawBatch(lost_samples=3, dropped_samples=4, configured_period=5).SerializeToString()
    outputs = Processor().raw(Raw([], start=START).bytes() + said, raw_id())
    (batch,) = map(SampleBatch.FromString, outputs.samples)
    assert (batch.lost_samples, batch.dropped_samples) == (3, 4)
    assert (batch.period, batch.configured_period) == (10, 5)
    assert batch.start_unix_milli == START // 10**6  # a window without samples has its time, too
    outputs = Processor().raw(Raw([Sample(n) for n in range(23_000)]).bytes() + said, raw_id())
    batches = [SampleBatch.FromString(sample) for sample in outputs.samples]
    assert len(batches) > 1
    assert [batch.lost_samples for batch in batches] == [3] + [0] * (len(batches) - 1)
    assert [batch.dropped_samples for batch in batches] == [4] + [0] * (len(batches) - 1)


def test_mappings_named_by_their_file_have_an_id_of_their_own() -> None:
    raw = Raw([Sample(1)], [[0, 1]], [(0, 5), (2, 5)])
    nodes, _ = stacks(Processor().raw(raw.bytes(), raw_id()).stacks)
    assert {location for _, location in nodes.values()} == {
        reference.location(reference.mapping("", ""), 5),
        reference.location(reference.mapping("", MAPPINGS[2].file), 5),
    }


@pytest.mark.parametrize("hosts", [1, 5])
def test_a_host_has_only_its_own_activity(hosts: int) -> None:
    processor = Processor()
    for host in range(hosts):
        processor.activity(activity([Interval(1, 0, 10, context(host + 1))], host=f"h{host}"), activity_id(host))
    for host in range(hosts + 1):
        samples = processor.raw(Raw([Sample(5)], host=f"h{host}").bytes(), raw_id(host)).samples
        assert {key[-1] for key in rows(samples)} == {context(host + 1) if host < hosts else NONE}
