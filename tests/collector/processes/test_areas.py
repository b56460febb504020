"""Areas that lie over each other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.processes.areas import NONE, Areas, over, paint

END = 64
area = st.tuples(st.integers(0, END - 1), st.integers(1, END)).map(lambda pair: (pair[0], min(END, pair[0] + pair[1])))
several = st.lists(area, max_size=12)


def naive(areas: list[tuple[int, int]]) -> list[int]:
    """The last area at each address, -1 for none."""
    found = [-1] * END
    for i, (start, end) in enumerate(areas):
        found[start:end] = [i] * (end - start)
    return found


def painted(areas: list[tuple[int, int]], first: int = 0) -> Areas:
    if not areas:
        return NONE
    start, end = (np.array(column, np.uint64) for column in zip(*areas, strict=True))
    return paint(start, end, (np.arange(len(areas)) + first).astype(np.uint32))


def at_each_address(areas: Areas) -> list[int]:
    assert (areas.start < areas.end).all()
    assert (areas.start[1:] >= areas.end[:-1]).all()
    found: list[int] = areas.find(np.arange(END, dtype=np.uint64)).tolist()
    return found


@given(several)
def test_of_areas_that_overlap_the_last_one_counts(areas: list[tuple[int, int]]) -> None:
    assert at_each_address(painted(areas)) == naive(areas)


@given(several, several)
def test_new_areas_take_the_place_of_what_they_cover(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
    assert at_each_address(over(painted(old), painted(new, len(old)))) == naive(old + new)


def test_many_areas_that_all_overlap_are_painted_soon() -> None:
    count = 50_000
    start = np.arange(count, dtype=np.uint64)
    areas = paint(start, start + np.uint64(count), np.arange(count, dtype=np.uint32))
    assert len(areas.start) == count
    assert areas.find(np.array([0, count - 1, 2 * count - 2, 2 * count], np.uint64)).tolist() == [
        0,
        count - 1,
        count - 1,
        -1,
    ]
