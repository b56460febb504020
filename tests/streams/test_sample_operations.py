"""Samples name the operations of their contexts, as far as activity has told them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from icestream.messages.samples import decode_samples
from icestream.topics import MAX_MESSAGE_BYTES
from streams.partition.process import Processor
from tests.data.handwritten import Interval, Raw, Sample, activity, activity_id, raw_id
from tests.data.messages import context
from tests.data.strategies import intervals, raws

pytestmark = pytest.mark.slow


def operations(messages: Sequence[bytes]) -> dict[bytes, str]:
    """The operation of each context that samples have; "": not known."""
    found = {}
    for message in messages:
        columns = decode_samples(message)
        names = [columns.operations[row] for row in columns.context_operation.tolist()]
        found |= dict(zip((one.tobytes() for one in columns.contexts), names, strict=True))
    return found


@given(raws(activity_sequence=1), intervals())
def test_it_is_that_of_an_interval_of_the_context(raw: Raw, found: list[Interval]) -> None:
    """Contexts that the eBPF program read are those of intervals as well, of any thread."""
    read = [replace(one, context=at, tid=9) for one, at in zip(found, raw.contexts, strict=False)]
    named = [replace(one, operation=f"GET /{row % 3}" * (row % 4 > 0)) for row, one in enumerate([*found, *read])]
    processor = Processor()
    processor.activity(activity(named), activity_id())
    expected = {one.context: one.operation for one in named if one.start_us < one.end_us}
    answer = operations(processor.raw(raw.bytes(), raw_id()).samples)
    assert answer == {at: expected.get(at, "") for at in answer}


def test_a_span_whose_operation_changed_has_the_last_one() -> None:
    """As in queries."""
    processor = Processor()
    for sequence, (start, name) in enumerate(((10, "GET /item"), (0, "GET"), (20, "")), 1):
        found = [Interval(1, start, start + 5, context(1), operation=name)]
        processor.activity(activity(found, sequence), activity_id(sequence))
    raw = Raw([Sample(3), Sample(13), Sample(23)], activity_sequence=3)
    assert operations(processor.raw(raw.bytes(), raw_id()).samples) == {context(1): "GET /item"}


def test_a_correction_names_the_operation() -> None:
    processor = Processor()
    raw = Raw([Sample(0), Sample(10), Sample(20)], activity_sequence=1)
    assert operations(processor.raw(raw.bytes(), raw_id()).samples) == {}
    late = [Interval(1, 0, 5, context(1), operation="GET /a"), Interval(1, 15, 25, context(2))]
    corrections = processor.activity(activity(late), activity_id()).samples
    assert operations(corrections) == {context(1): "GET /a", context(2): ""}


def test_names_that_make_a_message_too_large_are_left_out() -> None:
    """How samples are cut into messages does not depend on the names: a backfill does not know them."""
    count = 12_000
    raw = Raw([Sample(10 * row) for row in range(count)], activity_sequence=1)
    made = {}
    for length in (0, 1, 1000):
        found = [
            Interval(1, 10 * row, 10 * row + 5, context(row + 1), operation=f"{row:05}".ljust(length, "x")[:length])
            for row in range(count)
        ]
        processor = Processor()
        for sequence, first in enumerate(range(0, count, 500), 1):
            processor.activity(activity(found[first : first + 500], sequence), activity_id(sequence))
        made[length] = processor.raw(raw.bytes(), raw_id()).samples
        assert max(map(len, made[length])) <= MAX_MESSAGE_BYTES
    assert made[1000] == made[0]
    assert set(operations(made[1]).values()) == {"0", "1"}
    assert [len(decode_samples(one).value) for one in made[1]] == [len(decode_samples(one).value) for one in made[0]]
