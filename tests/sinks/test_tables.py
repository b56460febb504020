"""Messages that contradict themselves are refused before they reach a table."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import packed
from icestream.messages.checks import BadMessage
from icestream.topics import ACTIVITY, DEFAULT_PROFILE_TYPE, SAMPLES, STACKS
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import Mapping, Series, Source
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from sinks.tables.activity import ActivityTables
from sinks.tables.samples import SampleTables
from sinks.tables.stacks import StackTables
from tests.data.messages import batch_id, source
from tests.sinks.messages import activity_batch, sample_batch, stack_batch, tables

ONE = np.zeros(1)
SAMPLE = {
    f"sample_{name}": ONE for name in ("offset_ms", "series", "pid", "tid", "stack_id", "context", "count", "value")
}
INTERVAL = {
    f"interval_{name}": ONE
    for name in ("start_offset_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context", "service")
}
CONTEXT = {"context_trace_ids": bytes(16), "context_span_ids": bytes(8)}
FAR = 2**63
SAMPLE_HEADER = {
    "source": source(batch_id()),
    "host_id": "host-1",
    "profile_type": DEFAULT_PROFILE_TYPE,
}
ACTIVITY_HEADER = {"id": batch_id(1), "host_id": "host-1"}


@pytest.mark.parametrize(
    ("fields", "columns", "reason"),
    [
        ({}, SAMPLE, "sample_series: expected indices below 0, got 0"),
        (
            {"series": [Series()]},
            SAMPLE | {"sample_pid": np.zeros(2)},
            "expected 1 entries, as the columns beside it have, got",
        ),
        (
            {"series": [Series()]},
            SAMPLE | {"sample_context": np.ones(1)},
            "sample_context: expected indices below 1, got 1",
        ),
        ({"series": [Series()], "context_trace_ids": b"short"}, SAMPLE, "got 5 bytes and 0"),
        ({"series": [Series()], "context_trace_ids": bytes(16)}, SAMPLE, "got 16 bytes and 0"),
        ({"series": [Series()], "start_unix_milli": FAR}, SAMPLE, "expected a time from 1970"),
        ({"series": [Series()], "source": Source()}, SAMPLE, "source.batch.collector"),
        ({"series": [Series()], "host_id": ""}, SAMPLE, "host_id"),
        ({"series": [Series()], "profile_type": "cpu"}, SAMPLE, "profile_type"),
        ({"series": [Series()], "published_unix_nano": FAR}, SAMPLE, "expected a time from 1970"),
    ],
)
def test_samples_that_contradict_themselves_are_refused(
    fields: dict[str, Any], columns: dict[str, np.ndarray], reason: str
) -> None:
    with pytest.raises(BadMessage, match=reason):
        tables(SAMPLES, packed.serialize(SampleBatch(**(SAMPLE_HEADER | fields)), columns))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"node_id": ONE}, "expected 1 entries, as the columns beside it have, got"),
        (
            {f"location_{n}": ONE for n in ("id", "mapping", "address", "version", "line_count")},
            "location_mapping: expected indices below 0, got 0",
        ),
        (
            {f"line_{n}": ONE for n in ("function", "file", "number", "start_line")},
            "expected 0, as location_line_count says, got 1",
        ),
    ],
)
def test_stacks_that_contradict_themselves_are_refused(columns: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        tables(STACKS, packed.serialize(StackBatch(), columns))


def test_a_location_that_says_it_has_billions_of_lines_is_refused() -> None:
    columns = {f"location_{n}": ONE for n in ("id", "mapping", "address", "version")}
    message = StackBatch(mappings=[Mapping()])
    with pytest.raises(BadMessage, match="expected 4294967295, as location_line_count says"):
        tables(STACKS, packed.serialize(message, columns | {"location_line_count": np.array([2**32 - 1])}))


@pytest.mark.parametrize(
    ("fields", "columns", "reason"),
    [
        (CONTEXT, INTERVAL | {"interval_start_offset_ns": np.array([-1])}, "expected a time from 1970"),
        (
            CONTEXT,
            INTERVAL | {"interval_start_offset_ns": np.array([-(2**63)])},
            "interval_start_offset_ns: expected 0 to",
        ),
        (CONTEXT, INTERVAL | {"interval_service": np.ones(1)}, "interval_service: expected indices below 1, got 1"),
        ({"id": None}, {}, "id.collector"),
        (CONTEXT, INTERVAL | {"interval_thread_cpu_ns": np.array([2**62])}, "interval_thread_cpu_ns: expected a sum"),
        (CONTEXT | {"start_unix_nano": 4 * 10**18}, INTERVAL | {"interval_duration_ns": np.array([10**18])}, "to 2099"),
        ({}, INTERVAL, "interval_context: expected indices below 0, got 0"),
        ({"spans": [Span(trace_id=b"x")]}, {}, "expected IDs of 16, 8, and 8 or 0 bytes"),
        (CONTEXT, INTERVAL | {"context_operation": np.ones(1)}, "context_operation: expected indices below 1, got 1"),
        (CONTEXT, INTERVAL | {"context_operation": np.zeros(2)}, "context_operation: expected 1 entries"),
        (CONTEXT | {"context_entry_span_ids": b"12345"}, INTERVAL, "context_entry_span_ids: expected 8 bytes"),
        ({"spans": [Span(trace_id=bytes(16), span_id=bytes(8), operation="x" * 2000)]}, {}, "spans.operation"),
        (
            {"spans": [Span(trace_id=bytes(16), span_id=bytes(8), end_unix_nano=FAR)]},
            {},
            "spans.end_unix_nano: expected a time",
        ),
        (
            CONTEXT | {"start_unix_nano": 10**18},
            {name: np.arange(70, dtype=np.int64) * 0 for name in INTERVAL}
            | {"interval_start_offset_ns": np.arange(70, dtype=np.int64) * 86_400 * 10**9},
            "expected times within 24 hours",
        ),
    ],
)
def test_activity_that_contradicts_itself_is_refused(
    fields: dict[str, Any], columns: dict[str, np.ndarray], reason: str
) -> None:
    with pytest.raises(BadMessage, match=reason):
        tables(ACTIVITY, packed.serialize(ActivityBatch(**(ACTIVITY_HEADER | fields)), columns))


def test_intervals_and_entry_spans_have_their_operation() -> None:
    read = tables(ACTIVITY, activity_batch(1, rows=2))
    assert isinstance(read, ActivityTables)
    assert read.intervals["operation"].to_pylist() == ["GET /"] * 2
    assert read.intervals["entry_span_id"].to_pylist() == read.intervals["span_id"].to_pylist()
    assert read.spans["operation"].to_pylist() == ["GET /"]
    before = ActivityBatch.FromString(activity_batch(1))  # as collectors sent it that knew no operations
    for name in ("context_operation", "context_entry_span_ids"):
        before.ClearField(name)
    old = tables(ACTIVITY, before.SerializeToString())
    assert isinstance(old, ActivityTables)
    assert set(old.intervals["operation"].to_pylist()) == {""}
    assert set(old.intervals["entry_span_id"].to_pylist()) == {bytes(8)}


def test_samples_have_the_operation_of_their_context_or_else_the_label_that_names_a_span() -> None:
    for label, others in (("", ""), ("GET /label", "GET /label")):
        read = tables(SAMPLES, sample_batch(1, span_name=label))
        assert isinstance(read, SampleTables)
        assert read.known_operation.to_pylist() == [others, "GET /", others, "GET /", others]
        assert "known_operation" not in read.rows.column_names  # it is no column of the lake


def test_spans_have_their_status_and_one_that_there_is_not_is_refused() -> None:
    message = ActivityBatch.FromString(activity_batch(1))
    found = []
    for status in (0, 1, 2):
        message.spans[0].status = status
        read = tables(ACTIVITY, message.SerializeToString())
        assert isinstance(read, ActivityTables)
        found += read.spans["status"].to_pylist()
    assert found == ["", "ok", "error"]
    for status in (3, 2**32 - 1):
        message.spans[0].status = status
        with pytest.raises(BadMessage, match="status"):
            tables(ACTIVITY, message.SerializeToString())


def test_mappings_of_no_kind_are_refused() -> None:
    message = StackBatch(mappings=[Mapping()])
    message.mappings[0].kind = 77  # type: ignore[assignment]
    with pytest.raises(BadMessage, match="77"):
        tables(STACKS, message.SerializeToString())


def test_messages_without_rows_are_fine() -> None:
    samples = tables(SAMPLES, SampleBatch(**SAMPLE_HEADER).SerializeToString())  # type: ignore[arg-type]
    stacks = tables(STACKS, b"")
    activity = tables(ACTIVITY, ActivityBatch(**ACTIVITY_HEADER).SerializeToString())  # type: ignore[arg-type]
    assert isinstance(samples, SampleTables)
    assert isinstance(stacks, StackTables)
    assert isinstance(activity, ActivityTables)
    assert samples.rows.num_rows == stacks.locations.num_rows == activity.spans.num_rows == 0


@given(data=st.data(), which=st.sampled_from([sample_batch(1), stack_batch(2, ["a", "b"]), activity_batch(1)]))
def test_any_damage_gives_columns_or_a_bad_message(data: st.DataObject, which: bytes) -> None:
    damaged = bytearray(which)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for topic in (SAMPLES, STACKS, ACTIVITY):
        with contextlib.suppress(BadMessage):
            tables(topic, cut)
