from hypothesis import given
from hypothesis import strategies as st

from icestream.process.byte_cache import ENTRY_BYTES, ByteCache


def cache(limit_bytes: int) -> ByteCache[int, bytes]:
    return ByteCache(limit_bytes, lambda key, value: len(value))


def test_what_was_used_least_recently_is_forgotten_first() -> None:
    some = cache(3 * (ENTRY_BYTES + 10))
    for key in (1, 2, 3):
        some.put(key, bytes(10))
    assert some.get(1) == bytes(10)
    some.put(4, bytes(10))
    assert [key for key in (1, 2, 3, 4) if some.get(key) is not None] == [1, 3, 4]


def test_an_entry_larger_than_all_others_together_forgets_no_more_than_it_must() -> None:
    some = cache(10_000)
    some.put(1, b"small")
    some.put(2, bytes(20_000))
    assert (some.get(1), some.get(2)) == (b"small", None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2000))))
def test_its_bytes_are_those_of_its_entries_and_never_above_the_limit(puts: list[tuple[int, int]]) -> None:
    some = cache(5000)
    for key, size in puts:
        some.put(key, bytes(size))
        held = [value for key in range(10) if (value := some.get(key)) is not None]
        assert some.bytes == sum(len(value) + ENTRY_BYTES for value in held) <= 5000
        assert len(some) == len(held)
