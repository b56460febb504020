"""Code that the kernel generates while it runs: eBPF programs, and the trampolines of ftrace and kprobes.

The kernel reports each with its name when it comes and when it goes (PERF_RECORD_KSYMBOL). /proc/kallsyms names what
was there before, without its size: that of an eBPF function is asked for at the start, which needs CAP_SYS_ADMIN;
others have their page to themselves. Code whose size nobody says has no name, since the code behind it may be another
program's: filters of seccomp and sockets are in no list.
"""

import re
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collector.bpf.loaders import bpf_syscall
from collector.processes.process_events import KernelCode, Records

MOST = 8192
"""Pieces of code. The oldest that is gone is forgotten first."""

KEEP_NS = 120 * 10**9
"""How long code that is gone is remembered: samples of that time may come later."""

_READ_AGAIN_S = 60.0
_PAGE = 4096
_LISTED = re.compile(rb"^([0-9a-f]+) \w (\S+)\t\[(bpf|__builtin__\w+)\]$")
_ALWAYS = 2**64 - 1
_MAX_CELLS = 1 << 20  # addresses x pieces, at a time


@dataclass(frozen=True)
class _Code:
    start: int
    end: int
    name: str
    since_monotonic_ns: int = 0
    until_monotonic_ns: int = _ALWAYS


class GeneratedCode:
    """What code there is, and was lately. Safe to use from several threads. `root`: another root of /proc for tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._sizes = bpf_syscall.function_sizes()
        self._lock = threading.Lock()
        self._there: dict[int, _Code] = {}  # by its start
        self._gone: list[_Code] = []  # in the order in which it went
        self._before: dict[int, _Code] = {}  # what was there when records were lost
        self._lost_monotonic_ns = 0
        self._complete = False  # whether everything that is there is known
        self._read_s = float("-inf")

    def apply(self, records: Records) -> None:
        """Takes the kernel's records."""
        if not records.kernel_code and not records.lost:
            return
        with self._lock:
            if records.lost:  # other code may be there, since an unknown time
                self._before |= self._there
                self._lost_monotonic_ns = records.lost_monotonic_ns
                for code in self._before.values():
                    self._goes(code.start, records.lost_monotonic_ns)
                self._sizes.clear()
                self._complete = False
            for event in records.kernel_code:
                self._apply(event)
            oldest = time.monotonic_ns() - KEEP_NS
            self._gone = [code for code in self._gone if code.until_monotonic_ns >= oldest][-MOST:]

    def changes(self) -> np.ndarray:
        """The times (uint64, ascending) at which code went."""
        with self._lock:
            return np.unique(np.array([code.until_monotonic_ns for code in self._gone], np.uint64))

    def find(self, addresses: np.ndarray, times_monotonic_ns: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Returns a row of the names for each address (uint64) as of a time (uint64); -1 where nobody knows it."""
        with self._lock:
            names, row = self._find(addresses, times_monotonic_ns)
            if not self._complete and (row < 0).any() and time.monotonic() >= self._read_s + _READ_AGAIN_S:
                self._read()
                names, row = self._find(addresses, times_monotonic_ns)
        return row, names

    def _apply(self, event: KernelCode) -> None:
        if event.gone and event.start not in self._there:  # it was there before we looked
            self._there[event.start] = _Code(event.start, event.end, event.name)
        self._goes(event.start, event.time_monotonic_ns)
        self._sizes.pop(event.start, None)
        if not event.gone and len(self._there) < MOST:
            self._there[event.start] = _Code(event.start, event.end, event.name, event.time_monotonic_ns)

    def _goes(self, start: int, monotonic_ns: int) -> None:
        code = self._there.pop(start, None)
        if code is not None:
            self._gone.append(replace(code, until_monotonic_ns=monotonic_ns))

    def _read(self) -> None:
        """Reads what is listed now, which takes tens of milliseconds."""
        self._read_s, self._complete = time.monotonic(), True
        before, self._before = self._before, {}
        listed: list[tuple[int, str, bool]] = []
        try:
            with open(self._root / "proc/kallsyms", "rb") as lines:
                for line in lines:
                    if line.endswith(b"]\n") and (match := _LISTED.match(line)):
                        listed.append((int(match[1], 16), match[2].decode("utf-8", "replace"), match[3] == b"bpf"))
        except OSError:
            return
        for start, name, is_bpf in listed[:MOST]:
            size = self._sizes.get(start, 0) if is_bpf else _PAGE - start % _PAGE
            end = before[start].end if start in before and before[start].name == name else start + size
            if start < end and start:
                self._there.setdefault(start, _Code(start, end, name, self._lost_monotonic_ns))

    def _find(self, addresses: np.ndarray, times: np.ndarray) -> tuple[list[str], np.ndarray]:
        codes = [*self._there.values(), *self._gone]
        start, end, since, until = (
            np.array([getattr(code, name) for code in codes], np.uint64)
            for name in ("start", "end", "since_monotonic_ns", "until_monotonic_ns")
        )
        row = np.full(len(addresses), -1, np.int64)
        every = np.arange(len(addresses)) if codes else np.zeros(0, np.int64)
        for part in np.array_split(every, len(every) * len(codes) // _MAX_CELLS + 1):
            at, when = addresses[part, None], times[part, None]
            inside = (start <= at) & (at < end) & (since <= when) & (when < until)
            row[part] = np.where(inside.any(axis=1), inside.argmax(axis=1), -1) if len(part) else row[part]
        return [code.name for code in codes], row
