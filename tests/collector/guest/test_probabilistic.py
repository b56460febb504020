"""Taking turns: about the share that was asked for, of hosts and of time, and the same whoever computes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.guest.probabilistic import samples_at

TIME = 1_800_000_000.0


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_about_that_share_of_the_hosts_samples_at_any_time(share: float) -> None:
    for turn in range(5):
        sampling = sum(samples_at(TIME + 60 * turn, f"host-{i}", share, 60) for i in range(10_000))
        assert sampling / 10_000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_every_host_samples_for_that_share_of_the_time(share: float) -> None:
    for host in range(5):
        turns = sum(samples_at(TIME + 60 * turn, f"host-{host}", share, 60) for turn in range(10_000))
        assert turns / 10_000 == pytest.approx(share, abs=0.02)


@given(st.text(), st.floats(0, 1), st.floats(0, 59.9), st.integers(0, 10**8))
def test_a_turn_is_one_decision(host: str, share: float, second: float, turn: int) -> None:
    assert samples_at(turn * 60, host, share, 60) == samples_at(turn * 60 + second, host, share, 60)


@given(st.text(), st.floats(0, 4e9), st.floats(0, 1), st.floats(0, 1))
def test_who_samples_for_a_share_samples_for_a_larger_one(host: str, time: float, one: float, two: float) -> None:
    assert samples_at(time, host, min(one, two), 60) <= samples_at(time, host, max(one, two), 60)


@given(st.text(), st.floats(0, 4e9))
def test_all_and_none(host: str, time: float) -> None:
    assert samples_at(time, host, 1.0, 60)
    assert not samples_at(time, host, 0.0, 60)


def test_who_it_is_can_be_computed_elsewhere() -> None:
    """XXH3 of the host's ID, a slash and the turn's number."""
    assert "".join(host for host in "abcdefghijklmnopqrst" if samples_at(TIME, host, 0.3, 60)) == "defgjlt"
