"""Ports for servers that are started later, or never: none that the kernel gives to others. A test that asks
again and again whether a server is up might get its own connection to such a port, and then the server cannot listen.
"""

import itertools
import os
import random
import socket
from functools import cache

from standalone.supervisor.free_port import never_given

_PORTS = range(20_000, 65_536)  # parts of `icestream up` that may have any port get lower ones
_PROCESSES = 16
_LEAST_EACH = 100
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES


@cache
def _own() -> "itertools.cycle[int]":
    """The ports of this process of pytest. Another run of pytest has the same, and begins with another one."""
    ports = never_given(_PORTS)
    assert len(ports) >= _PROCESSES * _LEAST_EACH, "tests need ports that the kernel does not give"
    each = len(ports) // _PROCESSES
    own = ports[_process * each : (_process + 1) * each]
    begin = random.SystemRandom().randrange(each)  # tests may seed `random`
    return itertools.cycle([*own[begin:], *own[:begin]])


def free_port() -> int:
    """Returns a port of the loopback where nobody listens, and which no other process of this run of pytest gets."""
    for port in itertools.islice(_own(), len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
