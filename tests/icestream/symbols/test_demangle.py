"""Names of symbols as people read them."""

import pytest

from icestream.symbols.demangle import demangle


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("main", "main"),
        ("_ZN3foo3barEv", "foo::bar()"),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
        ("parse.cold", "parse"),
        ("parse.cold.3", "parse"),
        ("_ZN3foo3barEv.cold", "foo::bar()"),
        ("sre_match.constprop.0", "sre_match.constprop.0"),
        ("_Znot mangled", "_Znot mangled"),
    ],
)
def test_names_are_readable_and_parts_that_were_moved_away_have_their_functions_name(name: str, readable: str) -> None:
    assert demangle(name) == readable
