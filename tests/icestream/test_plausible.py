"""Numbers, texts and times that nothing real has make a message a bad one, which says the field and the value."""

from typing import Any

import numpy as np
import pytest

from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import MAX_LAG_NS, TimeLimits, Times
from icestream.messages.raw import decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.times import DAY_NS, MAX_UNIX_NANO
from icestream.v1.activity_pb2 import Span
from tests.data import messages
from tests.data.messages import batch_id, source

NOW = 1_790_000_000 * 10**9
NOW_MS = NOW // 10**6
LIMITS = TimeLimits(late_ns=30 * DAY_NS, early_ns=DAY_NS)
TIMES = LIMITS.collected(NOW_MS)


def raw(start: int = NOW, sequence: int = 1, columns: messages.Columns | None = None, **fields: Any) -> bytes:
    return messages.raw_batch(batch_id(sequence), start, columns or {}, **fields)


def samples(start: int = NOW, columns: messages.Columns | None = None, **of: Any) -> bytes:
    fields = {"series": [messages.sample_series({})]}
    return messages.sample_batch(source(batch_id(of.pop("sequence", 1)), **of), start // 10**6, columns or {}, **fields)


def intervals(start: int = NOW, columns: messages.Columns | None = None, **fields: Any) -> bytes:
    fields = messages.contexts([messages.context(1)]) | fields
    return messages.activity_batch(batch_id(), start, columns or {"interval_tid": [1]}, **fields)


def span(start: int, end: int) -> Span:
    return Span(trace_id=bytes(16), span_id=bytes(8), start_unix_nano=start, end_unix_nano=end)


@pytest.mark.parametrize("start", [NOW - 31 * DAY_NS, NOW + 2 * DAY_NS, 0, 1, 2**63, 2**64 - 1])
def test_times_far_from_kafkas_timestamp_are_a_bad_message_and_others_are_not(start: int) -> None:
    for good in (NOW, NOW - 29 * DAY_NS, NOW + DAY_NS // 2):
        decode_raw(raw(good), TIMES)
        decode_activity(intervals(good, spans=[span(good, good + 1)]), TIMES)
        decode_samples(samples(good, {"sample_offset_ms": [0]}), TIMES)
    with pytest.raises(BadMessage, match="_unix_nano: expected a time from 2026-08-22"):
        decode_raw(raw(min(start, 2**64 - messages.WINDOW_NS - 1), published_unix_nano=0), TIMES)
    with pytest.raises(BadMessage, match="_unix_nano: expected a time from 2026-08-22"):
        decode_activity(intervals(start), TIMES)
    with pytest.raises(BadMessage, match=r"spans\.start_unix_nano: expected a time from 2026-08-22"):
        decode_activity(intervals(spans=[span(start, NOW)]), TIMES)
    with pytest.raises(BadMessage, match=r"spans\.end_unix_nano: expected a time from 2026-08-22"):
        decode_activity(intervals(spans=[span(NOW, start)]), TIMES)
    with pytest.raises(BadMessage, match=r"(milli|offset_ms): expected a time from 2026-08-22"):
        decode_samples(samples(start, {"sample_offset_ms": [0]}), TIMES)


def test_outputs_may_be_later_than_their_input_but_no_time_may_be_ahead() -> None:
    old = NOW - 59 * DAY_NS
    decode_samples(samples(old, {"sample_offset_ms": [0]}), LIMITS.derived(NOW_MS))
    decode_stacks(messages.stack_batch({}, seen_unix_nano=1), LIMITS.derived(NOW_MS))  # `resolve` names old locations
    with pytest.raises(BadMessage, match="sample_offset_ms"):
        decode_samples(samples(1, {"sample_offset_ms": [1]}), LIMITS.derived(NOW_MS))
    with pytest.raises(BadMessage, match="seen_unix_nano"):
        decode_stacks(messages.stack_batch({}, seen_unix_nano=NOW + 2 * DAY_NS), LIMITS.derived(NOW_MS))


def test_a_message_without_a_timestamp_may_have_any_time_before_2100() -> None:
    for timestamp_ms in (-1, 0):
        assert LIMITS.collected(timestamp_ms) == LIMITS.derived(timestamp_ms) == Times(0, MAX_UNIX_NANO - 1)
    assert LIMITS.derived(NOW_MS).first == LIMITS.collected(NOW_MS).first - MAX_LAG_NS
    assert LIMITS.collected(2**62).first > LIMITS.collected(2**62).last  # no time fits an absurd timestamp


def test_the_times_of_one_message_lie_within_a_day() -> None:
    far = DAY_NS + 10**6
    for bad, decode in [
        (raw(end_unix_nano=NOW + far), decode_raw),
        (intervals(columns={"interval_start_offset_ns": [0, far]}), decode_activity),
        (intervals(columns={"interval_duration_ns": [0, far]}), decode_activity),
        (intervals(spans=[span(NOW, NOW), span(NOW + far, NOW + far)]), decode_activity),
        (samples(columns={"sample_offset_ms": [0, far // 10**6]}), decode_samples),
    ]:
        with pytest.raises(BadMessage, match="expected times within 24 hours, got 2026-"):
            decode(bad)


def test_numbers_that_nothing_real_has_are_a_bad_message() -> None:
    named = {f"location_{name}": [0] for name in ("mapping", "address", "function", "file")}
    line = {"location_id": [1], "location_mapping": [0], "location_line_count": [1]}
    for bad, decode, problem in [
        (raw(sequence=2**40), decode_raw, "id.sequence: expected 1 to 4294967295, got 1099511627776"),
        (raw(activity_sequence=2**40), decode_raw, "activity_sequence: expected 0 to"),
        (raw(lost_samples=2**64 - 1), decode_raw, "lost_samples"),
        (raw(columns=named | {"location_line": [2**31]}), decode_raw, "location_line"),
        (intervals(dropped=2**64 - 1), decode_activity, "dropped"),
        (samples(sequence=2**40), decode_samples, "source.batch.sequence"),
        (samples(offset=2**47), decode_samples, "source.offset"),
        (samples(columns={"sample_value": [2**62, 2**62]}), decode_samples, "sample_value: expected a sum"),
        (messages.stack_batch(line | {"line_number": [2**31]}), decode_stacks, "line_number"),
        (messages.stack_batch(line | {"line_start_line": [2**32 - 1]}), decode_stacks, "line_start_line"),
        (
            messages.stack_batch(line | {"line_number": [1], "location_version": [2**64 - 1]}),
            decode_stacks,
            "location_version",
        ),
    ]:
        with pytest.raises(BadMessage, match=problem) as caught:
            decode(bad)
        assert caught.value.field in problem or problem in caught.value.field


def test_texts_are_bounded_also_where_many_rows_share_one() -> None:
    rows = 10_000
    shared = messages.stack_batch(
        {
            "location_id": [1],
            "location_mapping": [0],
            "location_line_count": [rows],
            "line_function": np.ones(rows, int),
        },
        strings=["", "\N{SNOWMAN}" * 1000],
    )
    for bad, decode, field in [
        (shared, decode_stacks, "line_function: expected at most 16000000 bytes of text in all rows, got 30000000"),
        (intervals(columns={"interval_service": [1]}, strings=["", "s" * 2000]), decode_activity, "interval_service"),
        (intervals(spans=[Span(trace_id=bytes(16), span_id=bytes(8), name="n" * 2000)]), decode_activity, "spans.name"),
        (raw(host_id="\N{SNOWMAN}" * 100), decode_raw, "host_id: expected 1 to 256 bytes"),
    ]:
        with pytest.raises(BadMessage, match=field):
            decode(bad)
