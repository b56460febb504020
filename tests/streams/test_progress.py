from hypothesis import given
from hypothesis import strategies as st

from streams.progress import MAX_MISSING, RECENT, Progress


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1)), max_size=60))
def test_a_part_is_new_once(batches: list[tuple[int, int]]) -> None:
    progress, seen = Progress(), set[tuple[int, int]]()
    for batch in batches:
        assert progress.add(*batch, 2) == (batch not in seen)
        seen.add(batch)


def test_holes_are_counted_and_may_be_filled_once() -> None:
    progress = Progress()
    assert [progress.add(n, 0, 1) for n in (5, 6, 9, 7, 7, 9, 3)] == [True, True, True, True, False, False, True]
    assert progress.gaps == 2


def test_memory_is_bounded_and_old_batches_stay_known() -> None:
    progress = Progress()
    for sequence in (*range(1, 500), 10**12):
        progress.add(sequence, 0, 1)
    assert len(progress.parts) <= RECENT
    assert len(progress.missing) <= MAX_MISSING
    assert not progress.add(3, 0, 1)
    assert not progress.add(10**12, 0, 1)


def test_an_absurd_number_does_not_silence_a_collector() -> None:
    progress = Progress()
    for sequence in range(1, 11):
        assert progress.add(sequence, 0, 2)
        assert progress.add(2**31 + 7 * sequence * MAX_MISSING, 0, 1)
        assert progress.add(sequence, 1, 2)
        assert progress.complete(sequence)
        assert not progress.complete(sequence + 1)
    assert progress.gaps == 0
    # Two absurd numbers that seem to confirm each other do not, either.
    assert progress.add(2**31, 0, 1)
    assert progress.add(2**31 + 1, 0, 1)
    assert progress.add(11, 0, 2)
    assert progress.add(11, 1, 2)
    assert not progress.add(11, 1, 2)


def test_many_lost_batches_are_counted_when_the_next_batch_confirms_them() -> None:
    progress = Progress()
    assert [progress.add(n, 0, 1) for n in (1, 5000, 5001, 5000, 5001, 4999)] == [True, True, True, False, False, True]
    assert progress.gaps == 4998
    assert progress.high == 5001


def test_it_is_complete_when_all_parts_are_there_or_a_later_batch() -> None:
    progress = Progress()
    assert progress.complete(0)
    assert not progress.complete(1)
    progress.add(1, 0, 2)
    assert not progress.complete(1)
    progress.add(1, 1, 2)
    assert progress.complete(1)
    assert not progress.complete(2)
    progress.add(4, 0, 1)
    assert progress.complete(3)
