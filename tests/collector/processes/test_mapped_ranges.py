"""Mapped ranges that replace each other."""

from hypothesis import given
from hypothesis import strategies as st

from collector.processes.mapped_files import MappedFile, MapsEntry
from collector.processes.mapped_ranges import MappedRange, put
from icestream.v1.common_pb2 import Mapping

END = 40
mapping = st.tuples(st.integers(0, END - 1), st.integers(1, 12), st.integers(0, 3))


def mapped_range(start: int, end: int, number: int) -> MappedRange:
    """Number 0 is memory without a file."""
    if not number:
        return MappedRange(start, end, 0, MappedFile(Mapping.UNKNOWN, "", "[anon]"), "", True, None)
    path = f"/lib/{number}.so"
    file = MappedFile(Mapping.FILE, f"gnu:{number:02x}", path)
    return MappedRange(start, end, -start % 2**64, file, file.build_id, False, MapsEntry(1, start, end, 0, 0, path))


@given(st.lists(mapping, max_size=12))
def test_what_was_mapped_last_counts_and_ranges_stay_in_order(mappings: list[tuple[int, int, int]]) -> None:
    ranges: list[MappedRange] = []
    expected: list[tuple[str, int] | None] = [None] * END
    for start, size, number in mappings:
        new = mapped_range(start, min(END, start + size), number)
        before = list(ranges)
        changed = put(ranges, new)
        assert changed == (ranges != before)
        expected[new.start : new.end] = [(new.file.file, new.bias)] * (new.end - new.start)
    found: list[tuple[str, int] | None] = [None] * END
    for one in ranges:
        assert one.start < one.end
        assert not any(found[one.start : one.end])
        found[one.start : one.end] = [(one.file.file, one.bias)] * (one.end - one.start)
    assert ranges == sorted(ranges)
    assert found == expected


def test_memory_that_is_mapped_piece_by_piece_is_one_range() -> None:
    ranges: list[MappedRange] = []
    for page in range(1000):
        put(ranges, mapped_range(page, page + 1, 0))
    assert [(one.start, one.end) for one in ranges] == [(0, 1000)]
