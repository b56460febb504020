"""The socket to which applications of this host send their activity (schemas/activity-datagram.md)."""

import contextlib
import os
import socket
import stat
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collector.activity.activity_datagram import MOST_BYTES, MalformedDatagram, decode
from collector.activity.cpu_claims import CpuClaims
from collector.activity.datagram_buffer import DatagramBuffer, ReceivedDatagram
from collector.activity.flood import FloodLog
from collector.activity.intervals import ActivityIntervals
from collector.activity.join_datagrams import join_datagrams
from collector.activity.quotas import Quotas
from collector.activity.thread_ids import ThreadIds
from collector.processes.listener import ProcessListener
from collector.processes.process_events import Event, Executed, Forked

SERVICE_SECONDS = 30.0
"""How long a process keeps its service after its last datagram: three times the interval of hellos."""

MOST_SERVICES = 20_000  # processes: at most 10 MB, because a name has MOST_NAME_BYTES
MOST_SERVICES_OF_USER = 5_000
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


@dataclass
class ActivityCounts:
    """Since the receiver was made."""

    datagrams: int = 0  # that were understood
    malformed: int = 0  # datagrams that were not
    refused: int = 0  # intervals and spans that cannot be true
    overflowed: int = 0  # intervals for which there was no room
    unknown_threads: int = 0  # intervals of other processes' threads, or of ended ones in containers: kept with tid 0
    overlapping: int = 0  # intervals of threads that were in another one at the time: cut, or not kept
    unproven: int = 0  # intervals with more CPU time than the process has used: kept with less


class DatagramSender(NamedTuple):
    """The process and the user that sent a datagram, in our namespaces, as the kernel says."""

    pid: int
    uid: int


class _Service(NamedTuple):
    heard_at: float  # time.monotonic()
    name: str
    uid: int


class ActivityReceiver(ProcessListener):
    """Receives datagrams on a thread of its own, because the kernel queues only ten of them. Keeps them until `drain`.

    Makes the socket file and its directory, open to every user, and replaces a stale socket. Raises OSError where that
    is impossible, and FileExistsError where another collector listens on it or where it is no socket. Keeps at most
    `room` bytes. `quotas` cuts floods in the kernel; closes it.
    """

    def __init__(self, path: str | Path, room: int = 32 << 20, quotas: Quotas | None = None) -> None:
        self.path = Path(path)
        self.counts = ActivityCounts()
        self._lock = threading.Lock()
        self._buffer = DatagramBuffer(room)
        self._dropped = 0
        self._services: dict[int, _Service] = {}
        self._services_of: Counter[int] = Counter()
        self._floods = FloodLog(quotas)
        self._quotas = quotas
        self._thread_ids = ThreadIds()
        self._claims = CpuClaims()
        self._socket = _listen(self.path, quotas)
        self._inode = os.stat(self.path).st_ino
        self._thread = threading.Thread(target=self._receive, name="activity", daemon=True)
        self._thread.start()

    def drain(self) -> ActivityIntervals:
        """Returns everything that came since the last call."""
        with self._lock:
            received = self._buffer.drain()
            dropped, self._dropped = self._dropped, 0
        self._floods.report()
        return join_datagrams(received, dropped)

    def services(self) -> dict[int, str]:
        """The services of processes that sent something lately, by process ID."""
        since = time.monotonic() - SERVICE_SECONDS
        with self._lock:
            self._services = {pid: service for pid, service in self._services.items() if service.heard_at >= since}
            self._services_of = Counter(service.uid for service in self._services.values())
            return {pid: service.name for pid, service in self._services.items()}

    def event(self, pid: int, event: Event) -> None:
        """Forgets the service of a process that has executed another program since it named its service, and that of an
        earlier process with the same ID."""
        if pid not in self._services or not isinstance(event, Forked | Executed):
            return
        with self._lock:
            service = self._services.get(pid)
            if service is not None and service.heard_at * 1e9 < event.time_monotonic_ns:
                del self._services[pid]
                self._services_of[service.uid] -= 1

    def cpu_seconds(self) -> float:
        """The CPU time that receiving took. Whoever sends decides about it, so it says nothing about sampling."""
        if not self._thread.is_alive() or self._thread.ident is None:
            return 0.0
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def close(self) -> None:
        """Stops receiving, and removes the socket file. `drain` still works."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._socket.close()
        if self._quotas:
            self._quotas.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()

    def _receive(self) -> None:
        buffer = bytearray(MOST_BYTES + 1)
        while True:
            try:
                size, ancillary, flags, _ = self._socket.recvmsg_into([buffer], socket.CMSG_SPACE(_CREDENTIALS.size))
            except InterruptedError:
                continue
            except OSError:
                return
            if size == 0 and not ancillary:  # shut down
                return
            sender = _sender(ancillary)
            if sender.pid <= 0 or flags & socket.MSG_TRUNC:
                self.counts.malformed += 1
                continue
            try:
                self._take_in(sender, bytes(memoryview(buffer)[:size]))
                self.counts.datagrams += 1
            except MalformedDatagram:
                self.counts.malformed += 1

    def _take_in(self, sender: DatagramSender, content: bytes) -> None:
        datagram = decode(content, time.monotonic_ns())
        self.counts.refused += datagram.refused
        threads = self._thread_ids.of_host(*sender, datagram.tid, datagram.start_monotonic_ns, datagram.pid)
        self.counts.unknown_threads += len(threads.tid) - int(np.count_nonzero(threads.tid))
        bounded = self._claims.bound(*sender, threads, datagram)
        self.counts.overlapping += bounded.overlapping
        self.counts.unproven += bounded.unproven
        tid, datagram = threads.tid[bounded.kept], bounded.datagram
        with self._lock:
            self._note_service(sender, datagram.service)
            self._dropped += datagram.dropped
            if not len(tid) and not datagram.span_names:
                return
            for dropped in self._buffer.add(ReceivedDatagram(sender.pid, sender.uid, tid, datagram, len(content))):
                self.counts.overflowed += len(dropped.tid)
                self._dropped += len(dropped.tid)
                self._floods.add(dropped.pid, dropped.uid)

    def _note_service(self, sender: DatagramSender, name: str) -> None:
        if sender.pid not in self._services:
            if len(self._services) >= MOST_SERVICES or self._services_of[sender.uid] >= MOST_SERVICES_OF_USER:
                return
            self._services_of[sender.uid] += 1
        self._services[sender.pid] = _Service(time.monotonic(), name, sender.uid)


def _listen(path: Path, quotas: Quotas | None) -> socket.socket:
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # whatever the umask
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if quotas:
            quotas.attach(listener)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise FileExistsError(f"{path} is there already, and is no socket")
            if answers(path):
                raise FileExistsError(f"another collector listens on {path}")
            path.unlink()
        listener.bind(str(path))
        path.chmod(0o666)
    except OSError:
        listener.close()
        raise
    return listener


def answers(path: Path) -> bool:
    """Whether a process listens on this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _sender(ancillary: list[tuple[int, int, bytes]]) -> DatagramSender:
    """The sender, from the kernel; process 0 if it has no ID in our namespace."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack_from(data)
            return DatagramSender(pid, uid)
    return DatagramSender(0, 0)
