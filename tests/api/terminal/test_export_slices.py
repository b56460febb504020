"""The parts of a minute depend on its samples only."""

import bisect
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.terminal.client import AnswerError, Client
from api.terminal.export_slices import STEP_MS, Slices
from icestream.cli import CommandError
from icestream.times import parse_unix_nano

MOST_BYTES, MOST_SAMPLES = 100, 30
MINUTE_MS = 29_500_000 * STEP_MS


class Asked(Client):
    """Answers with a byte for each sample, and ten."""

    def __init__(self, times_ms: list[int]) -> None:
        super().__init__(None)
        self.times_ms = sorted(times_ms)
        self.ranges: list[tuple[int, int]] = []

    def read(self, path: str, parameters: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> bytes:
        start, end = (parse_unix_nano(parameters[name]) // 10**6 for name in ("start", "end"))
        self.ranges.append((start, end))
        count = bisect.bisect_left(self.times_ms, end) - bisect.bisect_left(self.times_ms, start)
        if count > MOST_SAMPLES * 10:
            raise AnswerError(422, "too large")
        return bytes(10 + count)


TIMES = st.lists(st.integers(0, 2 * STEP_MS - 1).map(MINUTE_MS.__add__), max_size=300)


@given(TIMES)
def test_a_minute_has_the_same_parts_whatever_was_read_before(times_ms: list[int]) -> None:
    asked = Asked([*times_ms, *range(MINUTE_MS, MINUTE_MS + 500)])
    slices = Slices(asked, "{}", "cpu", MOST_BYTES)
    first = list(slices.read_minute(MINUTE_MS))
    second = list(slices.read_minute(MINUTE_MS + STEP_MS))
    assert sum(len(part) - 10 for part in first + second) == len(asked.times_ms)
    assert all(len(part) <= MOST_BYTES for part in first + second) or len(set(times_ms)) < len(times_ms)
    alone = Asked(asked.times_ms)
    assert list(Slices(alone, "{}", "cpu", MOST_BYTES).read_minute(MINUTE_MS + STEP_MS)) == second
    assert asked.ranges[-len(alone.ranges) :] == alone.ranges


def test_a_moment_that_no_answer_holds_is_an_error() -> None:
    with pytest.raises(CommandError, match=r"00\.001Z has more samples"):
        list(Slices(Asked([MINUTE_MS + 1] * 301), "{}", "cpu", MOST_BYTES).read_minute(MINUTE_MS))


def test_only_whole_minutes_are_read() -> None:
    with pytest.raises(ValueError, match="no minute begins"):
        list(Slices(Asked([]), "{}", "cpu", MOST_BYTES).read_minute(MINUTE_MS + 1))
