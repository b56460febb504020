import contextlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.columns import packed
from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.raw import decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import Label, Mapping, Series
from streams.operators.attach import traced
from streams.partition.process import Processor
from tests.data.handwritten import Interval, Raw, Sample, activity, activity_id, raw_id
from tests.data.messages import context
from tests.data.strategies import intervals, raws
from tests.examples import examples

pytestmark = pytest.mark.slow

GOOD = Raw([Sample(5, stack=1, context=1), Sample(6)], [[0], [1, 0]], [(1, 16), (3, 2)], contexts=[context(1)])
RAW_DEFAULTS = {"sample_count", "sample_value", "sample_context", "location_function"}


@given(st.binary(max_size=400))
def test_random_bytes_are_bad_messages_or_columns(data: bytes) -> None:
    for decode in (decode_raw, decode_activity):
        with contextlib.suppress(BadMessage):
            decode(data)


@settings(max_examples=examples(3))
@given(raws(), intervals(), st.randoms(use_true_random=False), st.integers(1, 6))
def test_mutated_messages_are_bad_messages_or_processed_to_good_ones(
    raw: Raw, found: list[Interval], random: random.Random, changes: int
) -> None:
    processor = Processor()
    for message, process, message_id in (
        (raw.bytes(), processor.raw, raw_id()),
        (activity(found), processor.activity, activity_id()),
    ):
        data = bytearray(message)
        for _ in range(changes):
            at = random.randrange(len(data))
            data[at] = random.choice([0, 1, 127, 128, 255, random.randrange(256)])
        try:
            outputs = process(bytes(data[: random.choice([len(data), random.randrange(len(data) + 1)])]), message_id)
        except BadMessage:
            continue
        for output in outputs.samples:
            decode_samples(output)
        for output in outputs.stacks:
            decode_stacks(output)


@pytest.mark.parametrize("name", sorted(GOOD.columns()))
def test_a_column_that_is_too_short_is_a_bad_message(name: str) -> None:
    columns = GOOD.columns()
    columns[name] = columns[name][:-1]
    with pytest.raises(BadMessage):
        decode_raw(packed.serialize(GOOD.message(), columns))


@pytest.mark.parametrize(
    "name",
    ["location_mapping", "location_function", "location_file", "stack_frames", "sample_series", "sample_stack",
     "sample_context"],
)  # fmt: skip
def test_an_index_past_the_end_is_a_bad_message(name: str) -> None:
    columns = GOOD.columns()
    columns[name][0] = 2**32 - 1
    with pytest.raises(BadMessage, match=name):
        decode_raw(packed.serialize(GOOD.message(), columns))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"profile_type": "cpu"}, "profile_type"),
        ({"host_id": ""}, "host_id"),
        ({"host_id": "h" * 2000}, "host_id"),
        ({"start_unix_nano": 2**63}, "start_unix_nano"),
        ({"end_unix_nano": 1}, "end_unix_nano"),
        ({"published_unix_nano": 2**63}, "published"),
        ({"activity_complete_unix_nano": 2**63}, "activity_complete"),
        ({"context_trace_ids": b"x" * 17}, "context_trace_ids"),
        ({"context_span_ids": b"x" * 16}, "context_trace_ids"),
    ],
)
def test_a_field_out_of_range_is_a_bad_message(change: dict[str, object], reason: str) -> None:
    message = GOOD.message()
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(BadMessage, match=reason):
        decode_raw(packed.serialize(message, GOOD.columns()))


def test_batch_ids_are_checked() -> None:
    for field, value in [("collector", ""), ("sequence", 0), ("parts", 0), ("part", 1), ("parts", 2**31)]:
        message = GOOD.message()
        setattr(message.id, field, value)
        with pytest.raises(BadMessage, match="id"):
            decode_raw(packed.serialize(message, GOOD.columns()))


def test_values_whose_sum_would_overflow_are_a_bad_message() -> None:
    with pytest.raises(BadMessage, match="sum"):
        decode_raw(Raw([Sample(1, value=2**62), Sample(2, value=2**62)]).bytes())
    with pytest.raises(BadMessage, match="sum"):
        decode_raw(Raw([Sample(1, value=-(2**63))]).bytes())
    with pytest.raises(BadMessage, match="sample_count"):
        decode_raw(Raw([Sample(1, count=2**31)]).bytes())
    raw = Raw([Sample(1, count=2**31 - 1)])
    message, columns = raw.message(), raw.columns()
    message.period = 2**53
    del columns["sample_value"]
    with pytest.raises(BadMessage, match="sum"):
        decode_raw(packed.serialize(message, columns))


def test_samples_outside_of_the_window_are_a_bad_message() -> None:
    with pytest.raises(BadMessage, match="window"):
        decode_raw(Raw([Sample(5_000_000)]).bytes())


def test_stacks_deeper_than_any_real_one_are_a_bad_message() -> None:
    with pytest.raises(BadMessage, match="4096"):
        decode_raw(Raw([Sample(1)], [[0] * 5000]).bytes())


def test_a_message_larger_than_ours_is_a_bad_message() -> None:
    with pytest.raises(BadMessage, match=str(MAX_MESSAGE_BYTES)):
        decode_raw(GOOD.bytes() + b"\x00" * MAX_MESSAGE_BYTES)


def test_labels_twice_or_without_a_name_are_a_bad_message() -> None:
    for labels in ([Label(name="a", value="1"), Label(name="a", value="2")], [Label(value="1")]):
        message = GOOD.message()
        message.series[0].CopyFrom(Series(labels=labels))
        with pytest.raises(BadMessage, match="label"):
            decode_raw(packed.serialize(message, GOOD.columns()))


def test_more_labels_than_a_message_has_room_for_are_a_bad_message() -> None:
    message = GOOD.message()
    message.series[0].CopyFrom(Series(labels=[Label(name=str(i), value="v" * 1024) for i in range(100)]))
    with pytest.raises(BadMessage, match="characters of labels"):
        decode_raw(packed.serialize(message, GOOD.columns()))


def test_unknown_kinds_of_mappings_are_a_bad_message() -> None:
    message = GOOD.message()
    message.mappings.append(Mapping())
    message.mappings[-1].kind = 77
    with pytest.raises(BadMessage, match="77"):
        decode_raw(packed.serialize(message, GOOD.columns()))


def test_counts_and_values_have_defaults() -> None:
    columns = {name: column for name, column in GOOD.columns().items() if name not in RAW_DEFAULTS}
    raw = decode_raw(packed.serialize(GOOD.message(), columns))
    assert raw.sample_count.tolist() == [1, 1]
    assert raw.sample_value.tolist() == [10, 10]
    assert raw.sample_context.tolist() == [0, 0]


def test_a_context_of_zeros_is_none() -> None:
    raw = decode_raw(Raw([Sample(1, context=1), Sample(2, context=2)], contexts=[b"\x00" * 24, context(3)]).bytes())
    assert raw.sample_context.tolist() == [0, 2]


def test_ids_of_stacks_are_one_for_each_or_none() -> None:
    depth = decode_raw(GOOD.bytes()).stack_depth
    assert not decode_raw(GOOD.bytes()).stack_id.any()
    given = np.arange(1, len(depth) + 1, dtype=np.uint64)
    columns = GOOD.columns() | {"stack_id": given}
    found = decode_raw(packed.serialize(GOOD.message(), columns)).stack_id
    assert found.tolist() == np.where(depth > 0, given, 0).tolist()  # an empty stack has none
    with pytest.raises(BadMessage, match="stack_id"):
        decode_raw(packed.serialize(GOOD.message(), columns | {"stack_id": given[:-1]}))


def test_a_batch_without_anything_in_it_is_fine() -> None:
    raw = GOOD.message()
    del raw.strings[:], raw.mappings[:], raw.series[:]
    raw.context_trace_ids = raw.context_span_ids = b""
    assert len(decode_raw(raw.SerializeToString()).time_unix_nano) == 0


def test_intervals_are_checked() -> None:
    good = ActivityBatch.FromString(activity([Interval(1, 0, 10, context(1))]))
    for name, values in [
        ("interval_context", [1]),
        ("interval_service", [1]),
        ("interval_duration_ns", [2**63]),
        ("interval_start_offset_ns", [-(2**62)]),
        ("interval_tid", []),
        ("interval_labels", [1]),
        ("interval_labels", [0, 0]),
    ]:
        message = ActivityBatch()
        message.CopyFrom(good)
        del getattr(message, name)[:]
        getattr(message, name).extend(values)
        with pytest.raises(BadMessage, match="interval"):
            decode_activity(message.SerializeToString())
    good.spans.append(Span(trace_id=b"x"))
    with pytest.raises(BadMessage, match="spans"):
        decode_activity(good.SerializeToString())


def test_labels_of_processes_are_canonical_or_the_batch_is_bad() -> None:
    version, pod = '{"service_version":"1.1"}', '{"pod":"a","service_version":"1.1"}'
    message = ActivityBatch.FromString(activity([Interval(1, 0, 10, context(1)), Interval(2, 0, 10, context(1))]))
    assert decode_activity(message.SerializeToString()).labels.tolist() == [0, 0]  # older collectors send none
    message.strings.extend([version, pod])
    message.interval_labels.extend([len(message.strings) - 1, 0])
    message.spans.append(Span(trace_id=bytes(16), span_id=bytes(8), labels=version))
    read = decode_activity(message.SerializeToString())
    assert [read.strings[row] for row in read.labels.tolist()] == [pod, ""]
    assert read.spans.labels.texts() == [version]
    for bad in ('{"service_version": "1.1"}', '{"a":1}', "[" * 1000, '{"a":"' + "b" * 2000 + '"}', "version"):
        message.spans[0].labels = bad
        with pytest.raises(BadMessage, match=r"spans\.labels"):
            decode_activity(message.SerializeToString())
        message.spans[0].labels = ""
        message.strings[-1] = bad
        with pytest.raises(BadMessage, match="interval_labels"):
            decode_activity(message.SerializeToString())
        message.strings[-1] = pod


def test_intervals_without_a_trace_attach_to_nothing() -> None:
    columns = decode_activity(activity([Interval(1, 0, 10, b"\x00" * 24), Interval(2, 0, 10, context(1))]))
    assert columns.tid.tolist() == [1, 2]
    assert (traced(columns).thread & 0xFFFFFFFF).tolist() == [2]


def test_columns_have_the_types_they_say() -> None:
    raw = decode_raw(GOOD.bytes())
    assert raw.time_unix_nano.dtype == np.int64
    assert raw.sample_value.dtype == np.int64
    assert raw.sample_count.dtype == np.int32
