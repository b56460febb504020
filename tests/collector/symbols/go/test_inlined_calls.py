"""Tables of inlined calls that lie."""

import numpy as np

from collector.elf.gopclntab import GO_1_20, GoTable
from collector.symbols.go.functions import GoFunctions
from collector.symbols.go.inlined import MAX_DEPTH, find_calls, reach_functions, read_calls

NAMES = b"main.a\0main.b\0\0"


def call(name: int, at: int, blank: bytes = bytes(3)) -> bytes:
    return b"\0" + blank + name.to_bytes(4, "little", signed=True) + at.to_bytes(4, "little", signed=True) + bytes(4)


def good(data: bytes, *indexes: int, offset: int = 0) -> list[bool]:
    """Which calls of a function of 100 bytes are believed."""
    none = np.zeros(0, np.int64)
    table = GoTable(NAMES, GO_1_20, 0, 0, len(NAMES), 0, 0, 0, none, none, none)
    start, end, calls = np.array([0]), np.array([100]), np.array([offset])
    functions = GoFunctions(start, end, start, start, start, start, start, calls)
    found = read_calls(table, data, functions, np.zeros(len(indexes), np.int64), np.array(indexes))
    return found.good.tolist()


def test_a_call_has_a_name_and_lies_in_its_function() -> None:
    assert good(call(0, 0) + call(7, 99), 0, 1) == [True, True]
    assert good(call(3, 0) + call(-1, 0) + call(14, 0) + call(1 << 30, 0), 0, 1, 2, 3) == [False] * 4
    assert good(call(0, -1) + call(0, 100) + call(0, 5, b"\0\1\0"), 0, 1, 2) == [False] * 3


def test_indexes_and_offsets_beyond_the_data_are_no_calls() -> None:
    data = call(0, 0) + call(7, 0)
    assert good(data, 1, 2, 1 << 40) == [True, False, False]
    assert good(data[:-1], 0, 1) == [True, False]
    assert good(data, 0, offset=0xFFFFFFF0) == [False]
    assert good(b"", 0) == [False]
    assert good(data, -1, -(1 << 31)) == []
    assert good(data, 0, offset=-1) == [False]


def test_calls_around_themselves_or_too_deep_are_not_in_the_function() -> None:
    around = np.array([-1, 0, 2, 4, 3, 4, 1])
    believed = np.ones(7, bool)
    assert reach_functions(around, believed).tolist() == [True, True, False, False, False, False, True]
    believed[1] = False
    assert reach_functions(around, believed).tolist() == [True] + [False] * 6
    chain = np.arange(-1, 2 * MAX_DEPTH)
    assert reach_functions(chain, np.ones(len(chain), bool)).sum() == MAX_DEPTH


def test_a_call_that_is_not_there_is_not_found() -> None:
    none = np.zeros(0, np.int64)
    table = GoTable(NAMES, GO_1_20, 0, 0, len(NAMES), 0, 0, 0, none, none, none)
    functions = GoFunctions(*(np.array([0, 50]) for _ in range(8)))
    calls = read_calls(table, call(0, 0) * 9, functions, np.array([0, 1, 1]), np.array([4, 2, -1]))
    rows, indexes = np.array([0, 0, 1, 1, 1]), np.array([4, 2, 2, 4, -1])
    assert find_calls(calls, rows, indexes).tolist() == [0, -1, 1, -1, -1]
