"""Messages to columns: what is absurd is refused before it reaches a table."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream import packed
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import Mapping, Series
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from sinks.tables import activity, samples, stacks
from sinks.tables.arrow import BadMessage
from tests.sinks.messages import activity_batch, sample_batch, stack_batch

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


@pytest.mark.parametrize(
    ("fields", "columns", "reason"),
    [
        ({}, SAMPLE, "series 0 of 0"),
        ({"series": [Series()]}, SAMPLE | {"sample_pid": np.zeros(2)}, "different lengths"),
        ({"series": [Series()]}, SAMPLE | {"sample_context": np.ones(1)}, "context 1 of 1"),
        ({"series": [Series()], "context_trace_ids": b"short"}, SAMPLE, "not a multiple of 16"),
        ({"series": [Series()], "context_trace_ids": bytes(16)}, SAMPLE, "1 trace IDs, but 0 span IDs"),
        ({"series": [Series()], "start_unix_milli": FAR}, SAMPLE, "after 2100"),
        ({"series": [Series()], "published_unix_nano": FAR}, SAMPLE, "after 2100"),
    ],
)
def test_samples_that_contradict_themselves_are_refused(
    fields: dict[str, Any], columns: dict[str, np.ndarray], reason: str
) -> None:
    with pytest.raises(BadMessage, match=reason):
        samples.decode(packed.serialize(SampleBatch(**fields), columns))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"node_id": ONE}, "different lengths"),
        (
            {f"location_{n}": ONE for n in ("id", "mapping", "address", "version", "line_count")},
            "location_mapping 0 of 0",
        ),
        ({f"line_{n}": ONE for n in ("function", "file", "number", "start_line")}, "says 0 lines, there are 1"),
    ],
)
def test_stacks_that_contradict_themselves_are_refused(columns: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        stacks.decode(packed.serialize(StackBatch(), columns))


def test_a_location_that_says_it_has_billions_of_lines_is_refused() -> None:
    columns = {f"location_{n}": ONE for n in ("id", "mapping", "address", "version")}
    message = StackBatch(mappings=[Mapping()])
    with pytest.raises(BadMessage, match="says 4294967295 lines"):
        stacks.decode(packed.serialize(message, columns | {"location_line_count": np.array([2**32 - 1])}))


@pytest.mark.parametrize(
    ("fields", "columns", "reason"),
    [
        (CONTEXT, INTERVAL | {"interval_start_offset_ns": np.array([-1])}, "not between 1970 and 2100"),
        (CONTEXT, INTERVAL | {"interval_start_offset_ns": np.array([-(2**63)])}, "a century away"),
        (CONTEXT, INTERVAL | {"interval_service": np.ones(1)}, "interval_service 1 of 1"),
        ({}, INTERVAL, "interval_context 0 of 0"),
        ({"spans": [Span(trace_id=b"x")]}, {}, "not 16 and 8 bytes"),
        ({"spans": [Span(trace_id=bytes(16), span_id=bytes(8), end_unix_nano=FAR)]}, {}, "after 2100"),
        (
            CONTEXT | {"start_unix_nano": 10**18},
            {name: np.arange(70, dtype=np.int64) * 0 for name in INTERVAL}
            | {"interval_start_offset_ns": np.arange(70, dtype=np.int64) * 86_400 * 10**9},
            "more than 60 days",
        ),
    ],
)
def test_activity_that_contradicts_itself_is_refused(
    fields: dict[str, Any], columns: dict[str, np.ndarray], reason: str
) -> None:
    with pytest.raises(BadMessage, match=reason):
        activity.decode(packed.serialize(ActivityBatch(**fields), columns), "C", 0, 0)


def test_messages_without_rows_are_fine() -> None:
    assert samples.decode(b"").rows.num_rows == 0
    assert stacks.decode(b"").locations.num_rows == 0
    assert activity.decode(None, "C", 0, 0).spans.num_rows == 0


@given(data=st.data(), which=st.sampled_from([sample_batch(1), stack_batch(2, ["a", "b"]), activity_batch(1)]))
def test_any_damage_gives_columns_or_a_bad_message(data: st.DataObject, which: bytes) -> None:
    damaged = bytearray(which)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for decode in (samples.decode, stacks.decode, lambda value: activity.decode(value, "C", 0, 0)):
        with contextlib.suppress(BadMessage):
            decode(cut)
