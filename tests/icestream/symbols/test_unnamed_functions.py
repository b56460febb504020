"""The table of functions without a name behind a SymCache: what is written is read, and other files have none."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.symbols.unnamed_functions import UnnamedFunctions, read_unnamed, with_unnamed


def table(start: list[int], length: list[int]) -> UnnamedFunctions:
    return UnnamedFunctions(np.array(start, np.uint32), np.array(length, np.uint32))


@pytest.mark.parametrize("symcache", [b"SYMC", b"SYMC of an odd size", b""])
def test_functions_are_found_from_their_first_byte_to_their_last(symcache: bytes, tmp_path: Path) -> None:
    path = tmp_path / "symbols"
    path.write_bytes(with_unnamed(symcache, table([16, 32, 2**32 - 2], [16, 8, 2])))
    assert path.read_bytes().startswith(symcache)
    found = read_unnamed(path)
    assert found is not None
    starts = {15: None, 16: 16, 31: 16, 32: 32, 39: 32, 40: None, 2**32 - 1: 2**32 - 2, 2**32 + 16: None, 2**63: None}
    assert {address: found.start_of(address) for address in starts} == starts


def test_the_bytes_of_the_table_are_those_that_the_schema_describes() -> None:
    made = with_unnamed(b"SYMC.", table([1, 5], [2, 3]))
    assert made == b"SYMC.\0\0\0" + struct.pack("<4IQ8s", 1, 5, 2, 3, 2, b"UNNAMED1")


def test_a_symcache_alone_has_no_table(tmp_path: Path) -> None:
    path = tmp_path / "symbols"
    path.write_bytes(with_unnamed(b"SYMC of the usual kind, long enough", table([], [])))
    assert path.read_bytes() == b"SYMC of the usual kind, long enough"
    assert read_unnamed(path) is None


@given(data=st.binary(max_size=64), count=st.sampled_from([0, 1, 2, 3, 2**32, 2**61, 2**64 - 1]), place=st.integers(0))
def test_any_bytes_are_a_table_that_can_be_asked_or_none(
    data: bytes, count: int, place: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any_symbols"
    path.write_bytes(data + struct.pack("<Q8s", count, b"UNNAMED1"))
    found = read_unnamed(path)
    assert (found is not None) == (0 < 8 * count <= len(data))
    if found is not None:
        start = found.start_of(place)
        assert start is None or start <= place < start + 2**32
