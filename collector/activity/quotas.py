"""Limits in the kernel on what each process and each user may send to the activity socket (bpf/activity.bpf.c)."""

import logging
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from collector.bpf.loaders.libbpf import LibbpfLoader, Map
from collector.bpf.loaders.loader import LoadError

log = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parents[2] / "bpf" / "activity.bpf.c"

PROCESS_SHARE = 0.05
"""The share of one CPU that reading the activity of one process may take."""

_SO_ATTACH_BPF = 50  # include/uapi/asm-generic/socket.h
_QUOTA = struct.Struct("=QQII")  # struct quota of the program
_MOST_QUOTAS = 1 << 13


def user_share(cpus: int) -> float:
    """Returns the share of one CPU that reading the activity of all processes of one user may take on such a host."""
    return max(0.1, 0.01 * cpus)


class DroppedDatagrams(NamedTuple):
    """Datagrams of a process that were cut since the quotas were made."""

    pid: int
    uid: int
    datagrams: int


class Quotas:
    """Raises LoadError or OSError where the kernel refuses the program."""

    def __init__(self) -> None:
        self._program = LibbpfLoader().load(SOURCE, "limit", {})
        self._final: int | None = None
        self._cut, self._quotas = Map(self._program.map_fd("cut")), Map(self._program.map_fd("quotas"))
        prices = Map(self._program.map_fd("prices"))
        for kind, share in enumerate((PROCESS_SHARE, user_share(os.cpu_count() or 1))):
            prices.update(struct.pack("=I", kind), struct.pack("=Q", max(1, round(1 / share))))

    def attach(self, receiver: socket.socket) -> None:
        """From now on, what exceeds the quotas does not reach this socket. Its sender gets no error."""
        receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, self._program.fd)

    def cut(self) -> int:
        """How many datagrams were cut."""
        return int.from_bytes(self._cut.lookup(bytes(4), 8) or b"", "little") if self._final is None else self._final

    def by_process(self) -> list[DroppedDatagrams]:
        """The processes of which datagrams were cut."""
        values = self._quotas.values(8, _QUOTA.size, _MOST_QUOTAS)
        return [DroppedDatagrams(pid, uid, cut) for _, cut, uid, pid in _QUOTA.iter_unpack(values) if cut and pid]

    def close(self) -> None:
        self._final = self.cut()
        self._program.close()


def load_quotas() -> Quotas | None:
    """The quotas; None where the kernel refuses the program, which the log says."""
    try:
        return Quotas()
    except (LoadError, OSError) as error:
        log.warning("activity has no quotas in the kernel, so a flood of it costs the collector more: %s", error)
        return None
