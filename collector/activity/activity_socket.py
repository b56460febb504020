"""The socket to which applications of this host send their activity (schemas/activity-datagram.md)."""

import contextlib
import os
import socket
import stat
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.activity.activity_datagram import MOST_BYTES, ActivityDatagram, MalformedDatagram, decode
from collector.activity.intervals import Intervals
from collector.activity.thread_ids import ThreadIds
from icestream.v1.activity_pb2 import Span

SERVICE_SECONDS = 30.0
"""How long a process keeps its service after its last datagram: three times the interval of hellos."""

MOST_SERVICES = 20_000
_OVERHEAD = 2_000  # bytes of memory that a datagram takes besides its content
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


@dataclass
class Counts:
    """Since the receiver was made."""

    datagrams: int = 0  # that were understood
    malformed: int = 0  # datagrams that were not
    refused: int = 0  # intervals and spans that cannot be true
    overflowed: int = 0  # intervals for which there was no room
    unknown_threads: int = 0  # intervals of other processes' threads, or of ended ones in containers: kept, as of 0


@dataclass(frozen=True)
class _Heard:
    pid: int
    tid: np.ndarray
    datagram: ActivityDatagram


class ActivityReceiver:
    """Receives datagrams on a thread of its own, because the kernel queues only ten of them. Keeps them until `take`.

    Makes the socket file and its directory, open to every user, and replaces a stale socket. Raises OSError where that
    is impossible, and FileExistsError where another collector listens on it or where it is no socket. Keeps at most
    `room` bytes.
    """

    def __init__(self, path: str | Path, room: int = 32 << 20) -> None:
        self.path = Path(path)
        self.counts = Counts()
        self._room = room
        self._lock = threading.Lock()
        self._heard: list[_Heard] = []
        self._kept_bytes = 0
        self._dropped = 0
        self._services: dict[int, tuple[float, str]] = {}
        self._thread_ids = ThreadIds()
        self._socket = _listen(self.path)
        self._inode = os.stat(self.path).st_ino
        self._thread = threading.Thread(target=self._receive, name="activity", daemon=True)
        self._thread.start()

    def take(self) -> Intervals:
        """Returns everything that came since the last call."""
        with self._lock:
            heard, self._heard = self._heard, []
            dropped, self._dropped = self._dropped, 0
            self._kept_bytes = 0
        return _joined(heard, dropped)

    def services(self) -> dict[int, str]:
        """The services of processes that sent something lately, by process ID."""
        since = time.monotonic() - SERVICE_SECONDS
        with self._lock:
            self._services = {pid: entry for pid, entry in self._services.items() if entry[0] >= since}
            return {pid: name for pid, (_, name) in self._services.items()}

    def pids(self) -> set[int]:
        """Processes that sent something lately."""
        return set(self.services())

    def close(self) -> None:
        """Stops receiving, and removes the socket file. `take` still works."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._socket.close()
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
            pid = _sender(ancillary)
            if pid <= 0 or flags & socket.MSG_TRUNC:
                self.counts.malformed += 1
                continue
            try:
                self._hear(pid, bytes(memoryview(buffer)[:size]))
                self.counts.datagrams += 1
            except MalformedDatagram:
                self.counts.malformed += 1

    def _hear(self, pid: int, content: bytes) -> None:
        datagram = decode(content, time.monotonic_ns())
        self.counts.refused += datagram.refused
        tid = self._thread_ids.of_host(pid, datagram.tid, datagram.pid)
        self.counts.unknown_threads += len(tid) - int(np.count_nonzero(tid))
        with self._lock:
            if pid in self._services or len(self._services) < MOST_SERVICES:
                self._services[pid] = (time.monotonic(), datagram.service)
            self._dropped += datagram.dropped
            if not len(tid) and not datagram.span_names:
                return
            size = len(content) + _OVERHEAD
            if self._kept_bytes + size > self._room:
                self.counts.overflowed += len(tid)
                self._dropped += len(tid)
                return
            self._kept_bytes += size
            self._heard.append(_Heard(pid, tid, datagram))


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
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


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The sender's process ID in our namespace, from the kernel; 0 where it has none here."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(data)[0])
    return 0


def _joined(heard: list[_Heard], dropped: int) -> Intervals:
    """Joins all datagrams, with each context once."""
    datagrams = [h.datagram for h in heard]
    rows = [len(d.start_monotonic_ns) for d in datagrams]
    first_context = np.cumsum([0, *(len(d.contexts) for d in datagrams)], dtype=np.uint32)[:-1]
    all_contexts = np.concatenate([np.zeros((0, 24), np.uint8), *(d.contexts for d in datagrams)])
    context = _column(np.uint32, [d.context + first for d, first in zip(datagrams, first_context, strict=True)])
    used, context = np.unique(context, return_inverse=True)
    contexts, same = np.unique(np.ascontiguousarray(all_contexts[used]).view("V24").ravel(), return_inverse=True)
    bytes_of_contexts = contexts.view(np.uint8).reshape(-1, 24)
    strings = {name: row for row, name in enumerate(dict.fromkeys(["", *(d.service for d in datagrams)]))}
    services = np.array([strings[d.service] for d in datagrams], np.uint32)
    return Intervals(
        start_monotonic_ns=_column(np.uint64, [d.start_monotonic_ns for d in datagrams]),
        duration_ns=_column(np.uint64, [d.duration_ns for d in datagrams]),
        thread_cpu_ns=_column(np.uint64, [d.thread_cpu_ns for d in datagrams]),
        pid=np.repeat(np.array([h.pid for h in heard], np.uint32), rows),
        tid=_column(np.uint32, [h.tid for h in heard]),
        context=same[context].astype(np.uint32),
        service=np.repeat(services, rows),
        trace_ids=bytes_of_contexts[:, :16].tobytes(),
        span_ids=bytes_of_contexts[:, 16:].tobytes(),
        strings=list(strings),
        spans=[span for datagram in datagrams for span in _spans(datagram)],
        dropped=dropped,
    )


def _column(dtype: type[np.unsignedinteger], parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)


def _spans(datagram: ActivityDatagram) -> list[Span]:
    identifiers = datagram.span_ids.tobytes()
    return [
        Span(
            trace_id=identifiers[at : at + 16],
            span_id=identifiers[at + 16 : at + 24],
            parent_span_id=identifiers[at + 24 : at + 32].lstrip(b"\0") and identifiers[at + 24 : at + 32],
            name=name,
            service=datagram.service,
            start_unix_nano=start,
            end_unix_nano=end,
        )
        for at, name, start, end in zip(
            range(0, len(identifiers), 32),
            datagram.span_names,
            datagram.span_start_monotonic_ns.tolist(),
            datagram.span_end_monotonic_ns.tolist(),
            strict=True,
        )
    ]
