"""Ports for servers that are started later, or never.

The kernel gives connections, and servers that ask for any port, one from 32768 on (ip_local_port_range). A port from
there may be somebody else's by the time it is used, and who asks again and again whether a server is up may get his own
connection to it: then the server cannot listen.
"""

import itertools
import os
import random
import socket

_FIRST, _LAST = 20_000, 32_767
_PROCESSES = 16
_EACH = (_LAST + 1 - _FIRST) // _PROCESSES
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES
_numbers = itertools.count(random.randrange(_EACH))


def free_port() -> int:
    """Returns a port of the loopback where nobody listens, and which no other process of this run of pytest gets."""
    for number in itertools.islice(_numbers, _EACH):
        port = _FIRST + _process * _EACH + number % _EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
