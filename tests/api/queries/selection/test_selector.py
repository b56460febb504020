import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.queries.selection.selector import Matcher, SelectorError, format_selector, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" {} ", []),
        ('{service="checkout"}', [("service", "=", "checkout")]),
        ('{ a != "b" , c=~`\\d+`,}', [("a", "!=", "b"), ("c", "=~", "\\d+")]),
        ("{version=~\"1\\\\.4.*\", x!~'y'}", [("version", "=~", "1\\.4.*"), ("x", "!~", "y")]),
        ('{"k8s.pod name"="a\\"b\\n\\u00e9"}', [("k8s.pod name", "=", 'a"b\né')]),
        ('{k8s.pod-name=""}', [("k8s.pod-name", "=", "")]),
    ],
)
def test_selectors_are_read_as_in_promql(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [(m.label, m.operator, m.value) for m in parse(text)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("service", 'at character 1: a selector starts with "{"'),
        ("{service}", "at character 9: expected =, !=, =~ or !~"),
        ("{service=checkout}", "at character 10: expected a value in quotes; found 'checkout}'"),
        ('{service="checkout}', 'at character 10: the string that starts with " does not end'),
        ('{service="a" version="b"}', 'at character 14: expected "," or "}"'),
        ('{service="a"} or 1', 'at character 15: expected nothing after "}"'),
        ('{="a"}', "at character 2: expected a label name"),
        ('{,}', "at character 2: expected a label name"),
        ('{a="\\d"}', "at character 5: unknown escape"),
        ('{a="\\ud800"}', "at character 5: not a character"),
        ('{a="b"', 'at character 7: expected "," or "}" after a matcher; the selector ends'),
        ("{" + 'a="b",' * 40 + "}", "more than 32 matchers"),
        ('{a=~"' + "x" * 1001 + '"}', "more than 1000 characters"),
        ("{" + " " * 5000, "more than 4096"),
    ],
)  # fmt: skip
def test_what_cannot_be_parsed_is_reported_with_its_position(text: str, message: str) -> None:
    with pytest.raises(SelectorError, match=re.escape(message)):
        parse(text)


@given(st.text(alphabet="{}=!~\",'`\\ ab.-_0x\n\x00é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SelectorError):
        assert isinstance(parse(text), tuple)


_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(st.builds(Matcher, _VALUES.filter(bool), st.sampled_from(["=", "!=", "=~", "!~"]), _VALUES), max_size=5)
)
def test_a_selector_written_reads_back_as_it_was(matchers: list[Matcher]) -> None:
    assert list(parse(format_selector(tuple(matchers)))) == matchers
