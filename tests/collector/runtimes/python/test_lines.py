"""Lines of Python code, beside what CPython itself says of them."""

import types
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collector.runtimes.python import lines as python_lines
from collector.runtimes.python.lines import LineFormat, parse_lines

SOURCE = """
def far():
    x = 1
{gap}
    return [y for y in (x,
                        2)]

class Shop:
    def price(self, item=lambda z: z
              ): return (item

                         + 1)
"""


def codes(code: types.CodeType) -> list[types.CodeType]:
    return [code] + [inner for const in code.co_consts if isinstance(const, types.CodeType) for inner in codes(const)]


def disagreements(code: types.CodeType) -> list[tuple[int, int, int]]:
    lines = parse_lines(LineFormat.LOCATIONS, code.co_linetable, code.co_firstlineno)
    return [
        (offset, line, lines.at(offset))
        for start, end, line in code.co_lines()
        if line is not None
        for offset in range(start, end, 2)
        if lines.at(offset) != line
    ]


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_every_instruction_has_the_line_that_python_says(before: int, gap: int) -> None:
    module = compile("\n" * before + SOURCE.format(gap="\n" * gap), "shop.py", "exec")
    assert [wrong for code in codes(module) for wrong in disagreements(code)] == []


def test_every_instruction_of_a_long_file_has_its_line() -> None:
    module = compile(Path(python_lines.__file__).read_text() * 20, "long.py", "exec")
    assert [wrong for code in codes(module) for wrong in disagreements(code)] == []


@given(
    st.sampled_from(LineFormat), st.binary(max_size=300), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)
)
def test_any_bytes_are_some_lines(line_format: LineFormat, table: bytes, first: int, offset: int) -> None:
    assert 0 <= parse_lines(line_format, table, first).at(offset) < 2**31


def test_without_a_table_there_is_no_line_or_the_first() -> None:
    assert [parse_lines(line_format, b"", 7).at(0) for line_format in LineFormat] == [7, 0, 0]
