"""Reads perf maps by a child process (perfmap_child.py), so that a process without privileges parses what users write.

A perf map is not read again if the child died or took too long with it. If a user has several such files, none of the
user's files are read for a while, because each of them takes time from the others.
"""

import logging
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from collector import metrics
from collector.guest.confined_child import ConfinedChild
from collector.processes.jit_name import JitName
from collector.processes.perfmap_child import SIZE
from collector.processes.perfmap_lines import PerfMapLines
from collector.processes.perfmap_messages import MAX_ANSWER_BYTES, MAX_NAMES, LinesJob, NamesJob, PerfMapAnswerError

log = logging.getLogger(__name__)

COMMAND = ["-m", "collector.processes.perfmap_child"]
TIMEOUT_S = 10.0
"""A job may take so long: on a busy host, the child has to wait for a CPU. The child's start may take as long
before."""
MAX_FAILURES = 3
FAILURES_S = 600.0
"""An owner of MAX_FAILURES files that failed within that time is left out until it is over."""
_MAX_OWNERS = 1024

T = TypeVar("T")


class PerfMapError(RuntimeError):
    """The child did not survive this perf map: it should not be read again."""


class Owner(NamedTuple):
    """The user who wrote a file. Root of a container is root, too, but its files are on a device of its own."""

    user: int
    device: int  # 0 for other users, who may mount what they like in a namespace of theirs

    @classmethod
    def from_status(cls, status: os.stat_result) -> "Owner":
        return cls(status.st_uid, 0 if status.st_uid else status.st_dev)


class PerfMapReader:
    """For one thread; any thread may call `close`."""

    def __init__(self) -> None:
        self.child = ConfinedChild(COMMAND, TIMEOUT_S, "code that was compiled at run time has no names")
        self._failures: OrderedDict[Owner, list[float]] = OrderedDict()  # when; the one that failed last comes last

    def lines(self, file: int, part: LinesJob, owner: Owner) -> PerfMapLines | None:
        """Reads a part of a perf map of that owner; None where it cannot be read, or its owner is left out. Raises
        PerfMapError, and OSError where there is no child."""
        return self._ask(file, owner, part.encode(), part.decode_answer)

    def names(self, file: int, offsets: Sequence[int], addresses: Sequence[int], owner: Owner) -> list[JitName | None]:
        """Reads the names in lines, each with an address in its area; None for those without a name (any more). The
        list ends early if the file cannot be read (now). Raises PerfMapError, and OSError where there is no child."""
        names: list[JitName | None] = []
        for i in range(0, len(offsets), MAX_NAMES):
            wanted = NamesJob(offsets[i : i + MAX_NAMES], addresses[i : i + MAX_NAMES])
            read = self._ask(file, owner, wanted.encode(), wanted.decode_answer)
            if read is None:
                break
            names += read
        return names

    def close(self) -> None:
        """Ends the child."""
        self.child.close()

    def _ask(self, file: int, owner: Owner, job: bytes, decode: Callable[[bytes], T]) -> T | None:
        if self._left_out(owner):
            return None
        target = os.memfd_create("perf-map", os.MFD_CLOEXEC)
        try:
            (size,) = SIZE.unpack(self.child.run(job, [file, target]))
            if not size:
                return None
            data = os.pread(target, min(size, MAX_ANSWER_BYTES), 0)
            if len(data) != size:
                raise PerfMapAnswerError("it has another size than the child says")
            return decode(data)
        except (PerfMapAnswerError, struct.error) as error:
            self.child.stop()
            self._note_failure(owner)
            raise PerfMapError(str(error)) from None
        finally:
            os.close(target)

    def _left_out(self, owner: Owner) -> bool:
        failures = self._failures.get(owner, [])
        return len(failures) >= MAX_FAILURES and time.monotonic() - failures[-MAX_FAILURES] < FAILURES_S

    def _note_failure(self, owner: Owner) -> None:
        metrics.PERF_MAPS_FAILED.inc()
        failures = [*self._failures.pop(owner, []), time.monotonic()][-MAX_FAILURES:]
        self._failures[owner] = failures
        if len(self._failures) > _MAX_OWNERS:
            self._failures.popitem(last=False)
        if self._left_out(owner):
            log.warning(
                "perf maps of user %d are not read for %.0f minutes: reading %d of them took too long, or failed",
                owner.user, FAILURES_S / 60, MAX_FAILURES,
            )  # fmt: skip
