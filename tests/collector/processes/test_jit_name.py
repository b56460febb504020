"""Names as run times write them into perf maps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.processes.jit_name import JitName, parse_name
from tests.cpu_limit import cpu_limit


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("LazyCompile:*handle /srv/app.js:10:5", JitName("handle", "/srv/app.js", 10)),
        ("JS:~fn file:///srv/app.mjs:7:1", JitName("fn", "/srv/app.mjs", 7)),
        ("JS:*get total /srv/my app/b c.js:2:16", JitName("get total", "/srv/my app/b c.js", 2)),
        ("JS:^ /srv/app.js:1:116", JitName("(anonymous)", "/srv/app.js", 1)),
        ("JS:+next node:internal/streams:12:3", JitName("next", "node:internal/streams", 12)),
        ("Script:~ /srv/app.js:1:1", JitName("(script)", "/srv/app.js", 1)),
        ("Eval:~ :1:1", JitName("(eval)", "", 1)),
        ("Function:~compute app.js:3:1", JitName("compute", "app.js", 3)),
        ("JS:*compute", JitName("JS:*compute", "")),
        ("RegExp:a(b|c)+", JitName("RegExp:a(b|c)+", "")),
        ("Builtin:ArrayMap", JitName("Builtin:ArrayMap", "")),
        ("py::Shop.price:/srv/shop.py", JitName("Shop.price", "/srv/shop.py")),
        ("py::<genexpr>:/srv/a:b.py", JitName("<genexpr>", "/srv/a:b.py")),
        ("Lcom/shop/Cart;::total", JitName("Lcom/shop/Cart;::total", "")),
        ("void [Shop] Shop.Cart::Total()[Tier1]", JitName("void [Shop] Shop.Cart::Total()[Tier1]", "")),
    ],
)
def test_function_file_and_line_are_told_apart(text: str, name: JitName) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize("text", ["JS:" + " /" * 200_000, "JS:" + " /a:1" * 200_000, "Eval:" + " " * 200_000 + ":1:"])
def test_long_text_takes_linear_time(text: str) -> None:
    with cpu_limit(10):  # minutes, where the time is quadratic
        assert parse_name(text) == JitName(text, "")


@given(st.text(max_size=200), st.sampled_from(["", "JS:*", "py::", "LazyCompile:~", "Script:"]))
def test_any_text_is_a_name(text: str, before: str) -> None:
    name = parse_name(before + text)
    assert name.line >= 0
    assert name.function or name.file or not text
