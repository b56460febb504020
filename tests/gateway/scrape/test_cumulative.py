"""Cumulative profiles become what came since the scrape before."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.labels import to_labels
from gateway.readers.pprof import Source, read_pprof
from gateway.scrape.cumulative import Restarted, Totals, split, totals
from gateway.sent_profile import SentProfile
from icestream.messages.plausible import MAX_SPREAD_NS
from tests.gateway.profiles import START_UNIX_NANO, simple

MEMORY = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
SECOND = 10**9
Stacks = Mapping[tuple[str, ...], Sequence[int]]


def scraped(stacks: Stacks, number: int) -> SentProfile:
    """What the memory profile of a scrape is read as."""
    data = simple(stacks, MEMORY, ("space", "bytes")).SerializeToString()
    start = START_UNIX_NANO + number * 15 * SECOND
    return read_pprof(data, Source(to_labels([("service", "a")]), "", start, start + SECOND), 100)


def sums(profiles: Sequence[SentProfile]) -> Counter[tuple[str, int]]:
    """The sum of each sample type at each moment, in seconds from the first scrape."""
    found: Counter[tuple[str, int]] = Counter()
    for profile in profiles:
        at = (profile.window.start_unix_nano - START_UNIX_NANO) // SECOND
        assert set(profile.window.time_unix_nano.tolist()) <= {profile.window.start_unix_nano}
        for values in profile.values:
            found[values.profile_type.split(":")[1], at] += int(values.value.sum())
    return +found


def follow(scrapes: Sequence[Stacks]) -> list[Counter[tuple[str, int]]]:
    before: Totals | None = None
    found = []
    for number, stacks in enumerate(scrapes):
        profile = scraped(stacks, number)
        now = totals(profile)
        found.append(sums(list(split(profile, before, now))))
        before = now
    return found


def test_what_is_allocated_between_two_scrapes_counts_and_what_is_in_use_stays_as_it_is() -> None:
    first, second, third = follow(
        [
            {("main", "a"): (10, 1000, 2, 200)},
            {("main", "a"): (13, 1300, 1, 100), ("main", "b"): (5, 50, 5, 50)},
            {("main", "b"): (5, 50, 0, 0), ("main", "a"): (13, 1300, 1, 100)},
        ]
    )
    assert first == {("inuse_objects", 0): 2, ("inuse_space", 0): 200}
    assert second == {
        ("inuse_objects", 15): 6,
        ("inuse_space", 15): 150,
        ("alloc_objects", 0): 8,
        ("alloc_space", 0): 350,  # in the time that began with the first scrape
    }
    assert third == {("inuse_objects", 30): 1, ("inuse_space", 30): 100}


def test_what_came_in_more_than_a_message_may_span_counts_in_the_last_part_of_it() -> None:
    scrapes_a_day = 24 * 3600 // 15
    before = totals(scraped({("main", "a"): (10, 1000, 0, 0)}, 0))
    later = scraped({("main", "a"): (13, 1300, 0, 0)}, scrapes_a_day + 100)
    *_, added = split(later, before, totals(later))
    assert [int(values.value.sum()) for values in added.values] == [3, 300]
    assert 0 < added.window.end_unix_nano - added.window.start_unix_nano <= MAX_SPREAD_NS


@pytest.mark.parametrize(
    "after", [{("main", "a"): (9, 1000, 2, 200)}, {("main", "b"): (90, 9000, 2, 200)}, {("main", "a"): (0, 0, 0, 0)}]
)
def test_what_has_become_less_is_another_program(after: Stacks) -> None:
    before = totals(scraped({("main", "a"): (10, 1000, 2, 200)}, 0))
    profile = scraped(after, 1)
    with pytest.raises(Restarted):
        list(split(profile, before, totals(profile)))


GROWTH = st.lists(
    st.dictionaries(
        st.sampled_from([("main",), ("main", "a"), ("main", "a", "b"), ("b", "main")]),
        st.tuples(*[st.integers(0, 1000)] * 4),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("kept", [(1,), (1, 0)])
def test_a_profile_with_other_types_is_another_programs(kept: Sequence[int]) -> None:
    """A target that was replaced may have fewer types, or another order of them."""
    before, after = (totals(scraped({("main", "a"): (10, 1000, 2, 200)}, number)) for number in range(2))
    profile = scraped({("main", "a"): (2000, 3000, 2, 200)}, 1)
    other = dataclasses.replace(profile, values=[profile.values[row] for row in kept])
    with pytest.raises(Restarted):
        list(split(other, before, totals(other)))
    assert list(split(profile, before, after))


@given(GROWTH)
def test_all_differences_together_are_what_was_added_after_the_first_scrape(growth: list[Stacks]) -> None:
    total: dict[tuple[str, ...], list[int]] = {}
    scrapes = []
    for added in growth:
        for stack, numbers in added.items():
            old = total.get(stack, [0, 0])
            total[stack] = [old[0] + numbers[0], old[1] + numbers[1]]
        now = {stack: (*both, *added.get(stack, (0, 0, 0, 0))[2:]) for stack, both in total.items()}
        scrapes.append(dict(reversed(now.items())))
    found: Counter[tuple[str, int]] = sum(follow(scrapes), Counter())
    for column, kind in enumerate(["alloc_objects", "alloc_space"]):
        added = sum(numbers[column] for one in itertools.islice(growth, 1, None) for numbers in one.values())
        assert sum(count for (name, _), count in found.items() if name == kind) == added
    in_use = sum(numbers[3] for one in growth for numbers in one.values())
    assert sum(count for (name, _), count in found.items() if name == "inuse_space") == in_use
