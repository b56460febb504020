from hypothesis import given
from hypothesis import strategies as st

from streams.operators.seen_batches import MAX_MISSING, RECENT, SeenBatches


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1)), max_size=60))
def test_a_part_is_new_once(parts: list[tuple[int, int]]) -> None:
    batches, seen = SeenBatches(), set[tuple[int, int]]()
    for part in parts:
        assert batches.add(*part, 2) == (part not in seen)
        seen.add(part)


def test_holes_are_counted_and_may_be_filled_once() -> None:
    batches = SeenBatches()
    assert [batches.add(n, 0, 1) for n in (5, 6, 9, 7, 7, 9, 3)] == [True, True, True, True, False, False, True]
    assert batches.gaps == 2


def test_memory_is_bounded_and_old_batches_stay_known() -> None:
    batches = SeenBatches()
    for sequence in (*range(1, 500), 10**12):
        batches.add(sequence, 0, 1)
    assert len(batches.parts) <= RECENT
    assert len(batches.missing) <= MAX_MISSING
    assert not batches.add(3, 0, 1)
    assert not batches.add(10**12, 0, 1)


def test_an_absurd_number_does_not_silence_a_collector() -> None:
    batches = SeenBatches()
    for sequence in range(1, 11):
        assert batches.add(sequence, 0, 2)
        assert batches.add(2**31 + 7 * sequence * MAX_MISSING, 0, 1)
        assert batches.add(sequence, 1, 2)
        assert batches.complete(sequence)
        assert not batches.complete(sequence + 1)
    assert batches.gaps == 0
    # Two absurd numbers that seem to confirm each other do not, either.
    assert batches.add(2**31, 0, 1)
    assert batches.add(2**31 + 1, 0, 1)
    assert batches.add(11, 0, 2)
    assert batches.add(11, 1, 2)
    assert not batches.add(11, 1, 2)


def test_many_lost_batches_are_counted_when_the_next_batch_confirms_them() -> None:
    batches = SeenBatches()
    assert [batches.add(n, 0, 1) for n in (1, 5000, 5001, 5000, 5001, 4999)] == [True, True, True, False, False, True]
    assert batches.gaps == 4998
    assert batches.high == 5001


def test_it_is_complete_when_all_parts_are_there_or_a_later_batch() -> None:
    batches = SeenBatches()
    assert batches.complete(0)
    assert not batches.complete(1)
    batches.add(1, 0, 2)
    assert not batches.complete(1)
    batches.add(1, 1, 2)
    assert batches.complete(1)
    assert not batches.complete(2)
    batches.add(4, 0, 1)
    assert batches.complete(3)
