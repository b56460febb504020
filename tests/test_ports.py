"""Ports of tests are none that the kernel gives to others."""

from pathlib import Path

from tests.ports import free_port


def test_the_kernel_of_this_machine_does_not_give_a_free_port() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not first <= free_port() <= last
