"""Messages on disk until Kafka has them: one file a window, in order, bounded.

A window is written before it is sent and deleted when all of it was acknowledged, so that kill -9 loses nothing that
was cut: the next collector sends what is left, the same bytes under the same batch ID. The page cache survives the
death of a process, so nothing is synced; after a crash of the machine what is damaged is left out (frames.py).
"""

import contextlib
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.frames import FrameError, Message, decode, encode

_SUFFIX = ".frames"


class SpoolError(RuntimeError):
    """The directory cannot be used; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A window in the spool. `messages` is set where the disk could not take it."""

    number: int
    size: int
    messages: tuple[Message, ...] | None = None


class Spool:
    """A directory of one collector. Safe to use from several threads."""

    def __init__(self, directory: Path, limit_bytes: int, memory_bytes: int = 8 << 20) -> None:
        self._directory = directory
        self._limits = {True: memory_bytes, False: limit_bytes}  # by: is it in memory
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._last = 0  # number given
        self._held: set[int] = set()
        self._bytes = {True: 0, False: 0}
        self.dropped = 0  # windows
        self.dropped_bytes = 0
        self.failed_writes = 0
        self._lock_file = _own(directory)
        self._find_left()

    def append(self, messages: Sequence[Message]) -> None:
        """Takes a window in. Where the limit is passed, the oldest ones that are not being sent are dropped."""
        with self._lock:
            number = self._last = self._last + 1
            try:
                entry = Entry(number, self._write(number, messages))
            except OSError:
                # A full disk must not stop profiling it: memory holds a little.
                self.failed_writes += 1
                entry = Entry(number, sum(len(m.value) for m in messages), tuple(messages))
            self._add(entry)
            self._drop_oldest(entry.messages is not None)

    def hold(self, skip: set[int]) -> Entry | None:
        """The oldest window whose number is not in `skip`; it is not dropped until `release` or `delete`."""
        with self._lock:
            entry = next((entry for number, entry in self._entries.items() if number not in skip), None)
            if entry is not None:
                self._held.add(entry.number)
            return entry

    def release(self, entry: Entry) -> None:
        with self._lock:
            self._held.discard(entry.number)

    def read(self, entry: Entry) -> list[Message]:
        """Its messages; fewer than were written where the file is damaged, none where it is gone."""
        if entry.messages is not None:
            return list(entry.messages)
        try:
            with open(self._path(entry.number), "rb") as file:
                return list(decode(file))
        except (OSError, FrameError):
            return []

    def delete(self, entry: Entry) -> None:
        """After delivery."""
        with self._lock:
            self._remove(entry)

    @property
    def bytes(self) -> int:
        return sum(self._bytes.values())

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Lets another collector use the directory."""
        os.close(self._lock_file)

    def _find_left(self) -> None:
        """What an earlier collector could not send, and remains of a write that was cut off."""
        for path in sorted(self._directory.iterdir()):
            if path.name.endswith(".part"):
                path.unlink(missing_ok=True)
            elif path.suffix == _SUFFIX and path.stem.isdigit():
                self._last = int(path.stem)
                self._add(Entry(self._last, path.stat().st_size))
        self._drop_oldest(False)

    def _write(self, number: int, messages: Sequence[Message]) -> int:
        path = self._path(number)
        part = path.with_suffix(".part")
        try:
            with open(part, "wb") as file:
                file.writelines(encode(messages))
                size = file.tell()
            os.replace(part, path)  # a window is there as a whole or not at all
            return size
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise

    def _add(self, entry: Entry) -> None:
        self._entries[entry.number] = entry
        self._bytes[entry.messages is not None] += entry.size

    def _remove(self, entry: Entry) -> None:
        if self._entries.pop(entry.number, None) is None:
            return
        self._held.discard(entry.number)
        self._bytes[entry.messages is not None] -= entry.size
        if entry.messages is None:
            with contextlib.suppress(OSError):
                self._path(entry.number).unlink(missing_ok=True)

    def _drop_oldest(self, in_memory: bool) -> None:
        if self._bytes[in_memory] <= self._limits[in_memory]:
            return
        for entry in list(self._entries.values()):
            if (entry.messages is not None) == in_memory and entry.number not in self._held:
                self._remove(entry)
                self.dropped += 1
                self.dropped_bytes += entry.size
                if self._bytes[in_memory] <= self._limits[in_memory]:
                    return

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:016d}{_SUFFIX}"


def _own(directory: Path) -> int:
    """Makes the directory and locks it; returns the lock's descriptor. Raises SpoolError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SpoolError(f"the spool directory cannot be used: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise SpoolError(f"another collector uses the spool directory {directory}") from error
    return lock
