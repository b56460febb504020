"""Ports for parts that listen on them seconds later, and again after each restart.

The kernel gives connections, and servers that ask for any port, one of ip_local_port_range. A port from there may be
somebody else's connection by the time that a part listens on it.
"""

import errno
import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PORTS = range(10_000, 20_000)
_EACH = 16
"""Ports that a process usually needs: it begins so far behind the one with the process ID before."""


def never_given(ports: range) -> list[int]:
    """Returns those of the ports that the kernel gives to nobody."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, given.split())
    return [port for port in ports if not first <= port <= last]


@cache
def _own() -> Iterator[int]:
    """The ports of this process, the next one each time."""
    ports = never_given(_PORTS)
    begin = os.getpid() * _EACH % max(len(ports), 1)
    return itertools.cycle(ports[begin:] + ports[:begin])


def free_port(preferred: int = 0, host: str = "127.0.0.1") -> int:
    """Returns `preferred`, or another port if somebody listens there, or if it is 0: one that the kernel gives to
    nobody, if there is one. Raises OSError."""
    own = itertools.islice(_own(), len(_PORTS))
    for port in itertools.chain([preferred] if preferred else [], own):
        try:
            with listener(host, port):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    with listener(host, 0) as any_port:
        return int(any_port.getsockname()[1])


def listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens. Raises OSError and OverflowError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
