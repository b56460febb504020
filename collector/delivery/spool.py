"""The spool: messages on disk until Kafka has them. One file for each window, in order, and bounded.

A window is written before it is published, and deleted when all of it was acknowledged. So kill -9 loses no finished
window: the next collector publishes what is left, the same bytes under the same batch ID. The page cache survives the
death of a process, so nothing is synced; after a crash of the machine, damaged messages are left out (message_log.py).

What the disk cannot take waits in memory, up to a limit: a full disk, or a directory that cannot be used, must not end
profiling. Samples of windows that are given up are counted, so that a later batch can report them.
"""

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from collector.delivery.message_log import Message, decode, encode
from icestream.files import atomic_file, file_lock
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.raw_pb2 import RawBatch

MEMORY_BYTES = 8 << 20
_SUFFIX = ".messages"
_AGAIN_S = 30.0  # until a directory that could not be used is tried again


class SpoolError(RuntimeError):
    """Another collector uses the directory."""


@dataclass(frozen=True)
class SpooledWindow:
    """A window in the spool. `messages` is set if the disk could not take it."""

    number: int
    size: int
    messages: tuple[Message, ...] | None = None


class Spool:
    """A directory of one collector. Safe to use from several threads. Raises SpoolError."""

    def __init__(self, directory: Path, limit_bytes: int, memory_bytes: int = MEMORY_BYTES) -> None:
        self._directory = directory
        self._limits = {True: memory_bytes, False: limit_bytes}  # by whether they are in memory
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, SpooledWindow] = OrderedDict()
        self._last = time.time_ns() // 1000  # the last number; larger than those of an earlier collector's files
        self._held: set[int] = set()
        self._bytes = {True: 0, False: 0}
        self.dropped = 0  # windows, because there was no room
        self.dropped_samples = 0  # in windows that were given up for any reason
        self._unreported = 0  # those that no batch has counted yet
        self.failed_writes = 0
        self.trouble: str | None = None
        """Why windows wait in memory now, in words."""

        self._lock_file: int | None = None
        self._try_again = 0.0
        self._open()

    def append(self, messages: Sequence[Message]) -> None:
        """Adds a window. Above the limit, drops the oldest windows that are not being published, but never this one."""
        with self._lock:
            if self._lock_file is None and time.monotonic() >= self._try_again:
                with contextlib.suppress(SpoolError):
                    self._open()
            number = self._last = self._last + 1
            entry = self._written(number, messages) or SpooledWindow(
                number, sum(len(m.value) for m in messages), tuple(messages)
            )
            self._add(entry)
            self._drop_oldest(entry.messages is not None)

    def hold(self, skip: set[int]) -> SpooledWindow | None:
        """The oldest window whose number is not in `skip`; it is not dropped until `release`, `delete` or `give_up`."""
        with self._lock:
            entry = next((entry for number, entry in self._entries.items() if number not in skip), None)
            if entry is not None:
                self._held.add(entry.number)
            return entry

    def release(self, entry: SpooledWindow) -> None:
        with self._lock:
            self._held.discard(entry.number)

    def read(self, entry: SpooledWindow) -> list[Message]:
        """Its messages; fewer than were written where the file is damaged, none where it is gone. Raises OSError if the
        file cannot be read now."""
        if entry.messages is not None:
            return list(entry.messages)
        try:
            with open(self._path(entry.number), "rb") as file:
                return list(decode(file))
        except (FileNotFoundError, ValueError):
            return []

    def delete(self, entry: SpooledWindow) -> None:
        """After delivery."""
        with self._lock:
            self._remove(entry)

    def give_up(self, entry: SpooledWindow) -> None:
        """Deletes a window that cannot be delivered, and counts the samples in it."""
        samples = self._observed(entry)
        with self._lock:
            self._remove(entry)
            self._count_dropped(samples)

    def take_dropped_samples(self) -> int:
        """How many samples were in windows that were given up since the last call."""
        with self._lock:
            samples, self._unreported = self._unreported, 0
            return samples

    @property
    def bytes(self) -> int:
        return sum(self._bytes.values())

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Lets another collector use the directory."""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None
        self._try_again = float("inf")

    def _open(self) -> None:
        """Locks the directory, and takes over what an earlier collector left in it. If that fails, it is tried again
        later."""
        self._try_again = time.monotonic() + _AGAIN_S
        try:
            self._lock_file = _own(self._directory)
            left = list(_left(self._directory))
        except OSError as error:
            self.trouble = f"the spool directory cannot be used: {error}"
            return
        self.trouble = None
        for entry in left:
            if entry.number not in self._entries:  # the directory was away, and is back
                self._add(entry)
        self._entries = OrderedDict(sorted(self._entries.items()))
        self._last = max(self._last, *self._entries) if self._entries else self._last
        self._drop_oldest(False)

    def _written(self, number: int, messages: Sequence[Message]) -> SpooledWindow | None:
        """Writes the window to disk; None if the disk cannot take it."""
        if self._lock_file is not None:
            try:
                entry = SpooledWindow(number, self._write(number, messages))
                self.trouble = None
                return entry
            except FileNotFoundError:
                os.close(self._lock_file)
                self._lock_file, self._try_again = None, time.monotonic() + _AGAIN_S
                self.trouble = f"the spool directory {self._directory} was removed"
            except OSError as error:
                self.trouble = f"the spool directory {self._directory} cannot be written: {error.strerror}"
        self.failed_writes += 1
        return None

    def _write(self, number: int, messages: Sequence[Message]) -> int:
        path = self._path(number)
        with atomic_file.replacing(path) as file:
            file.writelines(encode(messages))
            return file.tell()

    def _add(self, entry: SpooledWindow) -> None:
        self._entries[entry.number] = entry
        self._bytes[entry.messages is not None] += entry.size

    def _remove(self, entry: SpooledWindow) -> None:
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
        for entry in list(self._entries.values())[:-1]:
            if (entry.messages is not None) == in_memory and entry.number not in self._held:
                self._count_dropped(self._observed(entry))
                self._remove(entry)
                self.dropped += 1
                if self._bytes[in_memory] <= self._limits[in_memory]:
                    return

    def _observed(self, entry: SpooledWindow) -> int:
        """How many samples it has, as far as it can be read."""
        try:
            return observed(self.read(entry))
        except OSError:
            return 0

    def _count_dropped(self, samples: int) -> None:
        self.dropped_samples += samples
        self._unreported += samples

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:016d}{_SUFFIX}"


def observed(messages: Sequence[Message]) -> int:
    """The number of CPU samples in raw batches, and of those that the batches report as lost or dropped."""
    count = 0
    for message in messages:
        if message.topic == RAW:
            with contextlib.suppress(DecodeError):
                batch = RawBatch.FromString(message.value)
                if batch.profile_type == DEFAULT_PROFILE_TYPE:
                    count += sum(batch.sample_count) or len(batch.sample_offset_us)
                    count += batch.lost_samples + batch.dropped_samples
    return count


def _own(directory: Path) -> int:
    """Makes the directory and locks it; returns the lock's descriptor. Raises SpoolError if another collector has it,
    and OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return file_lock.lock(directory / "lock")
    except file_lock.Locked as error:
        raise SpoolError(f"another collector uses the spool directory {directory}: {error}") from error


def _left(directory: Path) -> Iterator[SpooledWindow]:
    """Windows that an earlier collector could not publish. Removes files that were not completely written."""
    for path in sorted(directory.iterdir()):
        if path.name.endswith(atomic_file.PART):
            path.unlink(missing_ok=True)
        elif path.suffix == _SUFFIX and path.stem.isdigit():
            yield SpooledWindow(int(path.stem), path.stat().st_size)
