"""Datagrams of activity that wait for the next batch. A sender that sends much loses its own, not those of others."""

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from collector.activity.activity_datagram import ActivityDatagram

_OVERHEAD = 2_000  # bytes of memory that a datagram takes besides its content
_FREED = 8
"""One part in so many of the room is freed at once, so that this happens rarely."""


@dataclass(frozen=True, eq=False)
class ReceivedDatagram:
    """A datagram and its sender, as the kernel says."""

    pid: int
    uid: int
    tid: np.ndarray  # uint32 (intervals,), in the host's PID namespace
    datagram: ActivityDatagram
    content_bytes: int

    @property
    def bytes(self) -> int:
        return self.content_bytes + _OVERHEAD


class DatagramBuffer:
    """Keeps at most `room` bytes. Beyond that, the user with the most loses datagrams, of its process with the most.

    So all users have equal shares, and all processes of a user; what some do not need is the others'.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._clear()

    def _clear(self) -> None:
        self._datagrams: list[ReceivedDatagram | None] = []  # in the order of arrival; None where one was dropped
        self._by_user: dict[int, dict[int, list[int]]] = {}  # rows of _datagrams, by process
        self._process_bytes: Counter[int] = Counter()
        self._user_bytes: Counter[int] = Counter()

    def add(self, datagram: ReceivedDatagram) -> list[ReceivedDatagram]:
        """Keeps a datagram. Returns those that were dropped to make room, maybe that one too."""
        self._by_user.setdefault(datagram.uid, defaultdict(list))[datagram.pid].append(len(self._datagrams))
        self._datagrams.append(datagram)
        self._process_bytes[datagram.pid] += datagram.bytes
        self._user_bytes[datagram.uid] += datagram.bytes
        return self._make_room() if self._user_bytes.total() > self._room else []

    def drain(self) -> list[ReceivedDatagram]:
        """Returns what is kept, and keeps nothing any more."""
        datagrams = [datagram for datagram in self._datagrams if datagram is not None]
        self._clear()
        return datagrams

    def _make_room(self) -> list[ReceivedDatagram]:
        dropped: list[ReceivedDatagram] = []
        largest: dict[int, list[tuple[int, int]]] = {}  # heaps of (-bytes, process), by user
        while self._user_bytes.total() > self._room - self._room // _FREED:
            uid = max(self._user_bytes, key=self._user_bytes.__getitem__)
            processes = self._by_user[uid]
            if uid not in largest:
                largest[uid] = [(-self._process_bytes[pid], pid) for pid in processes]
                heapq.heapify(largest[uid])
            pid = largest[uid][0][1]
            row = processes[pid].pop()
            datagram, self._datagrams[row] = self._datagrams[row], None
            assert datagram is not None
            dropped.append(datagram)
            self._user_bytes[uid] -= datagram.bytes
            self._process_bytes[pid] -= datagram.bytes
            if processes[pid]:
                heapq.heapreplace(largest[uid], (-self._process_bytes[pid], pid))
            else:
                heapq.heappop(largest[uid])
                del processes[pid]
        return dropped
