"""Ranges given out of a table, whatever is asked for and taken back in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from collector.unwind.kernel.extents import Extents


@given(st.integers(0, 64), st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60))
def test_ranges_never_overlap_and_what_is_taken_back_is_given_again(size: int, steps: list[tuple[bool, int]]) -> None:
    extents = Extents(size)
    given_out: list[tuple[int, int]] = []
    for take, number in steps:
        if take:
            start = extents.allocate(number)
            rows = set(range(start, start + max(number, 1))) if start is not None else set()
            assert rows <= set(range(size))
            assert not any(rows & set(range(s, s + c)) for s, c in given_out)
            if start is not None:
                given_out.append((start, max(number, 1)))
        elif given_out:
            extents.free(*given_out.pop(number % len(given_out)))
        assert extents.free_rows == size - sum(count for _, count in given_out)
    for start, count in given_out:
        extents.free(start, count)
    assert extents.allocate(size) == (0 if size else None)
