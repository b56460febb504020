"""Ports of tests are none that the kernel gives to others, however a machine is set up."""

from pathlib import Path

import pytest

from tests.ports import free_port, never_given


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ("32768\t60999\n", 20_000, 32_767),
        ("49152 65535", 20_000, 49_151),
        ("1024 60999", 61_000, 65_535),
        ("15000 61000", 61_001, 65_535),
        ("1024 4999", 20_000, 65_535),
    ],
)
def test_ports_are_outside_of_those_that_the_kernel_gives(given: str, first: int, last: int) -> None:
    ports = never_given(given)
    assert (ports[0], ports[-1]) == (first, last)


def test_a_machine_that_gives_all_ports_is_refused() -> None:
    with pytest.raises(AssertionError, match="1024 65535"):
        never_given("1024 65535")


def test_the_kernel_of_this_machine_does_not_give_a_free_port() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not first <= free_port() <= last
