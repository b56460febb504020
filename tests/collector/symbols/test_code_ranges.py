"""The text that SymCaches are made of."""

from hypothesis import given
from hypothesis import strategies as st
from symbolic.debuginfo import Archive

from collector.symbols.code_ranges import SymbolRange, breakpad


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_names_of_any_kind_are_one_record_each(names: list[str]) -> None:
    text = breakpad([SymbolRange(16 * i, 16 * i + 8, name or "x") for i, name in enumerate(names)])
    assert text.count(b"\n") == 1 + len(names)
    cache = next(Archive.from_bytes(text).iter_objects()).make_symcache()
    for i, name in enumerate(names):
        if name.isascii() and name.isalnum():
            assert [found.symbol for found in cache.lookup(16 * i + 7)] == [name]
            assert not cache.lookup(16 * i + 8)
