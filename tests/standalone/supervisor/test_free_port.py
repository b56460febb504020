import socket
from pathlib import Path

import pytest

from standalone.supervisor import free_port as module
from standalone.supervisor.free_port import free_port, never_given


def given() -> tuple[int, int]:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(first), int(last)


def test_ports_that_the_kernel_gives_are_left_out() -> None:
    first, last = given()
    assert never_given(range(first - 2, first + 10)) == [first - 2, first - 1]
    assert never_given(range(last - 10, last + 3)) == [last + 1, last + 2]


def test_each_part_gets_a_port_of_its_own_before_it_listens() -> None:
    ports = [free_port() for _ in range(10)]
    assert len(set(ports)) == 10
    assert set(ports) <= set(never_given(range(1, 65_536)))


def test_a_port_where_somebody_listens_is_replaced() -> None:
    taken = free_port()
    assert free_port(taken) == taken
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port(taken) != taken


def test_where_the_kernel_gives_all_ports_it_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_own", lambda: iter([]))
    first, last = given()
    assert first <= free_port() <= last


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="Cannot assign"):
        free_port(host="192.0.2.1")
