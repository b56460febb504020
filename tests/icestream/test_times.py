"""Times as users write them."""

import contextlib
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.times import MAX_UNIX_NANO, TimeError, format_unix_nano, parse_unix_nano

NOW = 1_790_000_000 * 10**9
LATEST = MAX_UNIX_NANO - 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 1_790_000_000),
        ("now-15m", 1_790_000_000 - 900),
        ("now+1h", 1_790_000_000 + 3600),
        (" now-2d ", 1_790_000_000 - 2 * 86400),
        ("1700000000", 1_700_000_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T12:00:00+02:00", 1_769_853_600),
        ("2026-01-31", 1_769_817_600),
    ],
)
def test_times_are_read(text: str, seconds: int) -> None:
    assert parse_unix_nano(text, NOW) == seconds * 10**9


def test_fractions_are_exact() -> None:
    assert parse_unix_nano("1700000000.123456789") == 1_700_000_000_123_456_789
    assert parse_unix_nano("now-1ms", NOW) == NOW - 10**6


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "now-", "now-5", "now - 5m", "-1", "1e9", "99999999999999", "2026-13-01", "0001-01-01",
     "9999-01-01", "1700000000.1234567891", "now-999999999999999999w", "١٢٣", "\x00"],
)  # fmt: skip
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(TimeError):
        parse_unix_nano(text, NOW)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_time_error(text: str) -> None:
    with contextlib.suppress(TimeError):
        assert 0 <= parse_unix_nano(text) <= LATEST


@given(st.integers(0, LATEST))
def test_what_is_printed_can_be_read(nanos: int) -> None:
    assert parse_unix_nano(format_unix_nano(nanos)) == nanos // 10**6 * 10**6


@given(st.datetimes(datetime(1970, 1, 1), datetime(2099, 12, 31)))
def test_rfc_3339_keeps_microseconds(moment: datetime) -> None:
    exact = moment - datetime(1970, 1, 1)
    micros = exact.days * 86_400_000_000 + exact.seconds * 1_000_000 + exact.microseconds
    assert parse_unix_nano(moment.isoformat() + "Z") == micros * 1000
