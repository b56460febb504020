"""Ranges of names: they never overlap, and the innermost name wins."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from symbolic.debuginfo import Archive

from collector.symbols.code_ranges import Range, breakpad, disjoint

LENGTH = 60


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    places = draw(st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(0, LENGTH)), max_size=12))
    return [Range(start, end, f"f{i}") for i, (start, end) in enumerate(sorted(places))]


@given(ranges())
def test_an_address_belongs_to_the_last_range_that_begins_before_it_and_covers_it(given: list[Range]) -> None:
    found = list(disjoint(given))
    assert all(before.end <= after.start for before, after in itertools.pairwise(found))
    assert all(code_range.start < code_range.end for code_range in found)
    for address in range(LENGTH + 1):
        covering = [name for start, end, name in given if start <= address < end]
        names = [name for start, end, name in found if start <= address < end]
        assert names == covering[-1:]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_names_of_any_kind_are_one_record_each(names: list[str]) -> None:
    text = breakpad([Range(16 * i, 16 * i + 8, name or "x") for i, name in enumerate(names)])
    assert text.count(b"\n") == 1 + len(names)
    cache = next(Archive.from_bytes(text).iter_objects()).make_symcache()
    for i, name in enumerate(names):
        if name.isascii() and name.isalnum():
            assert [found.symbol for found in cache.lookup(16 * i + 7)] == [name]
            assert not cache.lookup(16 * i + 8)
