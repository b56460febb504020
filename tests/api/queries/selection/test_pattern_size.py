"""How large a regular expression becomes."""

import contextlib
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.queries.selection.pattern_size import MAX_SIZE, pattern_size

HOSTILE = "[ -?A-~]{0,999}" * 60


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("checkout|cart", 13),
        (r"^net/http\.\(\*Server\)\..*$", 22),
        ("a{3}b{2,}c{0,5}d{1}e{0}", 3 + 2 + 5 + 1 + 1),
        ("(?:ab){10}", 10 * 3),
        ("((a{9}){9}){9}", 729),
        ("[abc]{4}[]a]{2}[^]]{3}[[:alpha:]x]", 4 + 2 + 3 + 1),
        (r"\{3}a\\{2}", 1 + 2 + 1 + 2),
        ("{,3}a{x}", 8),
        (r"\pL{9}\p{Greek}{2}\x{2603}{3}[\pN\x{2603}]", 9 * 300 + 2 * 300 + 3 + 300),
        (HOSTILE, 59_940),
    ],
)
def test_what_is_repeated_counts_as_often(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size


@given(pattern=st.text("ab(){}[]|*+?\\^0123456789,-:.pP", max_size=60))
def test_any_text_has_a_size(pattern: str) -> None:
    assert pattern_size(pattern) >= 0


@given(pattern=st.from_regex(r"(\(\?:|a|\[b-d\]|\)|\{[0-9]{1,2}\}|\*){1,12}", fullmatch=True))
def test_what_takes_long_to_compile_is_large(pattern: str) -> None:
    """Small patterns are compiled at once."""
    if pattern_size(pattern) > MAX_SIZE:
        return
    started = time.thread_time()
    with contextlib.suppress(pa.ArrowInvalid):
        pc.match_substring_regex(pa.array([""]), pattern)
    assert time.thread_time() - started < 3
