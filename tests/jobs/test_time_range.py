"""The time range of a job."""

from datetime import date
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobs.time_range import SLICE_NS, JobTimeRange

TIMES = st.integers(0, 4 * 10**18)


@given(TIMES, st.integers(1, 100 * SLICE_NS))
def test_slices_follow_each_other_and_are_the_whole_range(start_unix_nano: int, duration_ns: int) -> None:
    time_range = JobTimeRange(start_unix_nano, start_unix_nano + duration_ns)
    slices = list(time_range.slices())
    assert slices[0].start_unix_nano == time_range.start_unix_nano
    assert slices[-1].end_unix_nano == time_range.end_unix_nano
    for one, following in pairwise(slices):
        assert one.end_unix_nano == following.start_unix_nano
        assert following.start_unix_nano % SLICE_NS == 0
    assert all(0 < part.end_unix_nano - part.start_unix_nano <= SLICE_NS for part in slices)
    assert slices[-1].end_unix_nano == time_range.end_unix_nano


def test_a_range_that_ends_at_midnight_does_not_touch_the_next_day() -> None:
    day_ns = 86_400 * 10**9
    assert JobTimeRange(0, day_ns).days() == [date(1970, 1, 1)]
    assert JobTimeRange(0, day_ns + 1).days() == [date(1970, 1, 1), date(1970, 1, 2)]
