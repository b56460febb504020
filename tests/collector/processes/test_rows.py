"""Rows of mappings that take each other's place."""

from hypothesis import given
from hypothesis import strategies as st

from collector.processes.mapped_files import MappedFile, Place
from collector.processes.rows import Row, put
from icestream.v1.common_pb2 import Mapping

END = 40
mapping = st.tuples(st.integers(0, END - 1), st.integers(1, 12), st.integers(0, 3))


def row(start: int, end: int, number: int) -> Row:
    """Number 0 is memory without a file."""
    if not number:
        return Row(start, end, 0, MappedFile(Mapping.UNKNOWN, "", "[anon]"), True, None)
    path = f"/lib/{number}.so"
    file = MappedFile(Mapping.FILE, f"gnu:{number:02x}", path)
    return Row(start, end, -start, file, False, Place(1, start, end, 0, 0, path))


@given(st.lists(mapping, max_size=12))
def test_what_was_mapped_last_counts_and_rows_stay_in_order(mappings: list[tuple[int, int, int]]) -> None:
    rows: list[Row] = []
    expected: list[tuple[str, int] | None] = [None] * END
    for start, size, number in mappings:
        new = row(start, min(END, start + size), number)
        before = list(rows)
        changed = put(rows, new)
        assert changed == (rows != before)
        expected[new.start : new.end] = [(new.file.file, new.bias)] * (new.end - new.start)
    found: list[tuple[str, int] | None] = [None] * END
    for one in rows:
        assert one.start < one.end
        assert not any(found[one.start : one.end])
        found[one.start : one.end] = [(one.file.file, one.bias)] * (one.end - one.start)
    assert rows == sorted(rows)
    assert found == expected


def test_memory_that_is_mapped_piece_by_piece_is_one_row() -> None:
    rows: list[Row] = []
    for page in range(1000):
        put(rows, row(page, page + 1, 0))
    assert [(one.start, one.end) for one in rows] == [(0, 1000)]
