"""The off-CPU profile: how long threads waited or were on the run queue, and where (bpf/off_cpu.h; docs/off-cpu.md)."""

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collector.bpf import records
from collector.bpf.join_stacks import NO_CODE, CodeRange, join
from collector.bpf.loaders.choose import LoadError
from collector.bpf.loaders.libbpf import Map, open_raw_tracepoint, run_stats
from collector.bpf.program import MOST_WAITS, PROGRAMS, ProfileProgram
from collector.bpf.records import Descriptions
from collector.bpf.ringbuf import RingBuffer
from collector.bpf.samples import DrainedSamples

log = logging.getLogger(__name__)

TRACEPOINT = "sched_switch"
_PROGRAM = "off_cpu"
MOST_DISTANCE = 1 << 32
MOST_VALUE = 1e18  # ns: 32 years
PENDING_BYTES = 32 << 20  # of records in this process between two drains; beyond, the kernel's buffer fills
_DISTANCE, _WAIT_NS, _QUEUE_NS = range(7, records.WAIT_WORDS - 1)  # of a record without its header
_LOST = ("lost_off_cpu_buffer_full", "lost_off_cpu_table_full")


@dataclass(frozen=True)
class Waits:
    """Which waits to follow."""

    share: float  # of all, from 0 to 1; it becomes the nearest 2 / n
    least_ns: int  # of shorter times, some are sent, which stand for this


def check(loader: str = "auto") -> str | None:
    """None when waits can be followed here, else the reason. Attaches the program and lets it go again."""
    try:
        program = ProfileProgram(1_000_000_000, loader, with_off_cpu=True)
    except (LoadError, OSError) as error:
        return str(error)
    try:
        OffCpu(program, Waits(0, 0)).close()
    except (LoadError, OSError) as error:
        return str(error)
    finally:
        program.close()
    return None


class OffCpu:
    """Follows waits until `close`. For one thread."""

    def __init__(self, program: ProfileProgram, waits: Waits) -> None:
        """`program` was loaded with `with_off_cpu`. Raises OSError or LoadError where the kernel does not permit it."""
        self._program, self._waits = program, waits
        program.go_on_to([f"off_cpu_{name}" for name in PROGRAMS], "off_cpu_programs")
        self._waiting = Map(program.map_fd("waiting"))
        self._read: list[np.ndarray] = []
        self._long = records.parse_descriptions(np.empty(0, np.uint64), 0)  # of long waits that go on
        self._lost_no_stack = self._lost_reported = 0
        self._switching = switching_code()
        self._buffer = RingBuffer(program.map_fd("waits"), program.waits_bytes)
        self.set_share(1)
        try:
            self._attached = _attach(program.program_fd(_PROGRAM))
        except (OSError, LoadError):
            self._buffer.close()
            raise

    def set_share(self, part: float) -> None:
        """From now on follows this part of the share in the settings."""
        share = self._waits.share * part
        distance = min(round(2 / share), MOST_DISTANCE) if share else 0
        self._followed_of = max(round(distance / 2), 1)
        self._program.set_off_cpu(distance, self._waits.least_ns)

    def poll(self) -> np.ndarray:
        """Moves records into this process's memory. Returns the processes they are of (uint32, distinct)."""
        if sum(part.nbytes for part in self._read) > PENDING_BYTES:
            return np.empty(0, np.uint32)
        waits = records.complete_waits(self._buffer.unread())
        pids = np.unique(waits[:, 3].astype(np.uint32))
        if len(waits):
            self._read.append(waits[:, 1:].copy())
            self._buffer.consume(waits.size)
        return pids

    def awaited(self) -> np.ndarray:
        """The keys of the stacks and span names of the followed waits that go on (uint64), for `drain`. Call it before
        the last `poll` of a window."""
        size = 8 * (records.WAIT_WORDS - 1)
        try:
            waits = self._waiting.values(8, size, MOST_WAITS)
        except OSError as error:
            log.warning("the threads that wait now cannot be read: %s", error)
            return self._long.key
        return np.frombuffer(waits, np.uint64).reshape(-1, size // 8)[:, [1, 6]].ravel()

    def drain(self, descriptions: Descriptions, before: Descriptions, awaited: np.ndarray) -> DrainedSamples:
        """The waits that ended since the last drain, then their times on the run queue. `descriptions`: of this window;
        `before`: of the one before."""
        waits = np.concatenate([np.empty((0, records.WAIT_WORDS - 1), np.uint64), *self._read])
        self._read = []
        queued = waits[waits[:, _QUEUE_NS] > 0]
        queued[:, _WAIT_NS] = 0
        waits = np.concatenate([waits[waits[:, _WAIT_NS] > 0], queued])
        earlier = records.concatenate(before, self._long)
        joined = join(waits, descriptions, earlier, self._switching)
        # A wait that goes on may have begun in any earlier window; its stack and span name were sent then.
        keys, rows = np.unique(earlier.key, return_index=True)
        self._long = records.compact(earlier, rows[np.isin(keys, awaited)])
        self._lost_no_stack += joined.missing
        wait_ns, queue_ns = joined.records[:, _WAIT_NS], joined.records[:, _QUEUE_NS]
        length_ns = np.where(wait_ns, wait_ns, queue_ns)
        value = np.minimum(length_ns * (joined.records[:, _DISTANCE] / 2), MOST_VALUE).astype(np.int64)
        stacks = joined.samples.stack.astype(np.int64) * 2 + (wait_ns == 0)
        rows, stack = np.unique(stacks, return_inverse=True)
        samples = replace(joined.samples.with_stacks(rows // 2, stack), stack_queued=rows % 2 == 1)
        return replace(samples, value=value, followed_of=self._followed_of, lost=self._newly_lost())

    def stats(self) -> dict[str, int]:
        """`observed` (switches of threads since the host started), `run_time_ns` and `run_count` of the program."""
        return {"observed": _switches(), **run_stats(self._program.program_fd(_PROGRAM))}

    def close(self) -> None:
        os.close(self._attached)
        self._buffer.close()

    def _newly_lost(self) -> int:
        counters = self._program.counters()
        total = sum(counters[name] for name in _LOST) + self._lost_no_stack
        newly, self._lost_reported = total - self._lost_reported, total
        return newly


def _attach(program_fd: int) -> int:
    try:
        return open_raw_tracepoint(TRACEPOINT, program_fd)
    except FileNotFoundError as error:
        raise LoadError(f"the kernel has no tracepoint {TRACEPOINT} (CONFIG_TRACEPOINTS)") from error
    except PermissionError as error:
        raise LoadError(f"no program may run at the tracepoint {TRACEPOINT}: {error.strerror}") from error


def switching_code(root: Path = Path("/")) -> CodeRange:
    """The code of the kernel function that switches threads; frames further in belong to tracing. NO_CODE where the
    kernel hides the address."""
    try:
        symbols = (root / "proc/kallsyms").read_bytes()
    except OSError:
        return NO_CODE
    at = symbols.find(b" __schedule\n")
    here, after = symbols[symbols.rfind(b"\n", 0, at) + 1 :][:16], symbols[symbols.find(b"\n", at) + 1 :][:16]
    return CodeRange(int(here, 16), int(after, 16)) if at >= 0 and after else NO_CODE


def _switches() -> int:
    """proc(5), /proc/stat."""
    with open("/proc/stat", "rb") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith(b"ctxt ")), 0)
