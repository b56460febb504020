"""Ports for servers that are started later, or never.

The kernel gives connections, and servers that ask for any port, one of ip_local_port_range. A port from there may be
somebody else's by the time it is used, and who asks again and again whether a server is up may get his own connection
to it: then the server cannot listen.
"""

import itertools
import os
import random
import socket
from functools import cache
from pathlib import Path

_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _END = 20_000, 65_536
_PROCESSES = 16
_LEAST_EACH = 100
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES


def never_given(given: str) -> range:
    """Ports below or above those that the kernel gives: `given` has the first and the last one.

    Raises AssertionError where there are too few.
    """
    first, last = map(int, given.split())
    found = max(range(_FIRST, first), range(max(_FIRST, last + 1), _END), key=len)
    assert len(found) >= _PROCESSES * _LEAST_EACH, f"tests need ports that the kernel does not give; it gives {given}"
    return found


@cache
def _own() -> "itertools.cycle[int]":
    """The ports of this process of pytest. Another run of pytest has the same, and begins with another one."""
    ports = never_given(_GIVEN.read_text())
    each = len(ports) // _PROCESSES
    own = ports[_process * each : (_process + 1) * each]
    begin = random.SystemRandom().randrange(each)  # tests may seed `random`
    return itertools.cycle([*own[begin:], *own[:begin]])


def free_port() -> int:
    """Returns a port of the loopback where nobody listens, and which no other process of this run of pytest gets."""
    for port in itertools.islice(_own(), _END):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
