"""The profiler's program in the kernel (bpf/profile.bpf.c): loads it, attaches it to every CPU, opens its maps."""

import enum
import mmap
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collector.bpf.loaders.choose import LoadError, choose
from collector.bpf.loaders.libbpf import Map, possible_cpus, run_stats
from collector.bpf.perf_event import PerfEvents, online_cpus
from collector.bpf.records import SAMPLE_WORDS
from collector.bpf.ringbuf import RingBuffer
from collector.bpf.samples import COMPILERS
from collector.processes.process import read_process

SOURCE = Path(__file__).resolve().parents[2] / "bpf" / "profile.bpf.c"

# `enum counter` of the program; the last ones count stacks by where they end (samples.ENDS)
COUNTERS = (
    "observed", "lost_sample_buffer_full", "lost_stack_buffer_full", "lost_requests", "no_user_stack",
    "python_no_thread", "python_cut",
    "off_cpu_followed", "off_cpu_short", "lost_off_cpu_buffer_full", "lost_off_cpu_table_full",
    "stack_complete", "stack_no_process", "stack_no_mapping", "stack_no_table", "stack_no_rule", "stack_read_fault",
    "stack_replaced", "stack_too_deep", "stack_virtual_thread",
    *(f"stack_code_of_{name.lower()}" for name in COMPILERS),
)  # fmt: skip

# `enum program`: what `profile` continues with
PROGRAMS = ("unwind", "python", "python_frames", "python_skip", "python_place", "ship")

ROW_PAGE_BITS = 12
"""Bytes of an entry of the map of rows, as a power of two."""

_BUFFERED_SECONDS = 4  # the buffers have room for this long without a poll
_STACK_BYTES = 320  # of a description; most ticks find a stack that is known
_SAMPLE_BUFFER = (1 << 18, 1 << 25)  # least and most bytes
_STACK_BUFFER = (1 << 20, 1 << 26)
_REQUEST_BYTES = 1 << 16
_ROWS_BYTES = 32 << 20
_WAIT_BUFFER = (1 << 19, 1 << 23)
MOST_WAITS = 1 << 13  # threads whose wait is followed at a time


class Image(NamedTuple):
    """Distinguishes the program that a process executes from those before, and from its parent's. Both are random."""

    start_code: int
    start_stack: int


class ContextKind(enum.IntEnum):
    """What a thread-local variable has the address of: `enum context_kind` of the program."""

    THREAD_CONTEXT = 0  # OpenTelemetry's
    GO_LABELS = 1  # runtime.g
    CUSTOM_LABELS = 2
    GO_LABEL_MAP = 3  # runtime.g, whose labels are a map
    NODE_CONTEXT = 4  # no address: it says where V8 has what leads to an OpenTelemetry thread context


class GoLabels(NamedTuple):
    """Offsets in a build of Go's runtime (collector/activity/go_labels.py)."""

    goroutine: int  # in runtime.m: the goroutine that it runs
    labels: int  # in runtime.g: its labels


class TlsPlace(NamedTuple):
    """Where the threads of a process have a thread-local variable: `offset` bytes from the thread pointer; or, with a
    module, from the module's block, whose address is in the thread's DTV (collector/activity/tls_symbol.py)."""

    offset: int
    module: int = 0  # 0: none
    generation: int = 0  # an older DTV of glibc knows another module by this ID, or none
    dtv: int = 0  # from the thread pointer to where the address of the DTV is
    entry_bytes: int = 0  # of the DTV
    kind: ContextKind = ContextKind.THREAD_CONTEXT
    go: GoLabels = GoLabels(0, 0)


def image_of(pid: int) -> Image:
    """Raises OSError when there is no such process."""
    process = read_process(pid)
    if process is None:
        raise ProcessLookupError(f"there is no process {pid}")
    return Image(*process.program[:2])


class ProfileProgram:
    """Is loaded when it is created, and runs from `start` to `close`. Raises LoadError or OSError if the kernel
    refuses."""

    def __init__(
        self, period_ns: int, loader: str, sizes: dict[str, int] | None = None, with_off_cpu: bool = False
    ) -> None:
        """`sizes`: bytes of `samples` and `descriptions`, powers of two; by default from the period and the CPUs.
        `with_off_cpu`: loads what OffCpu attaches, too."""
        sizes = buffer_sizes(period_ns, len(online_cpus()), with_off_cpu) | (sizes or {})
        self._program = choose(loader).load(SOURCE, "profile", sizes, without="" if with_off_cpu else "off_cpu")
        try:
            self._open(sizes)
            self._events = PerfEvents(self._program.fd, period_ns)
        except (OSError, LoadError):
            self._program.close()
            raise

    def start(self) -> None:
        """Attaches the program to every CPU. Raises OSError."""
        self._events.follow_cpus()

    def _open(self, sizes: dict[str, int]) -> None:
        fd = self.map_fd = self._program.map_fd
        self.program_fd = self._program.program_fd
        self.waits_bytes = sizes["waits"]
        self.row_pages = sizes["rows"]
        self._entries: dict[str, Map] = {}
        self.go_on_to(PROGRAMS, "programs")
        self.requests = RingBuffer(fd("requests"), _REQUEST_BYTES)
        self.requests_fd = fd("requests")
        self.samples = RingBuffer(fd("samples"), sizes["samples"])
        self.descriptions = RingBuffer(fd("descriptions"), sizes["descriptions"])
        self._contexts, self._counters = Map(fd("contexts")), Map(fd("counters"))
        self._control_page = mmap.mmap(fd("control"), mmap.PAGESIZE)
        self.marker = secrets.randbits(64) | 1
        struct.pack_into("=QI", self._control_page, 0, self.marker, 1)
        self._epoch = 1

    def go_on_to(self, names: Sequence[str], programs: str) -> None:
        """Fills a map of programs in this order."""
        known, entries = self._program.programs(), Map(self.map_fd(programs))
        for index, name in enumerate(names):
            if name in known:
                entries.update(struct.pack("=I", index), struct.pack("=I", self.program_fd(name)))

    def set_entry(self, table: str, key: int, value: bytes) -> None:
        """See RuntimeMaps."""
        self._entry_map(table).update(struct.pack("=I", key), value)

    def delete_entry(self, table: str, key: int) -> None:
        """See RuntimeMaps."""
        self._entry_map(table).delete(struct.pack("=I", key))

    def set_off_cpu(self, distance: int, least_ns: int) -> None:
        """Follows one of distance / 2 switches on average, or none if it is 0. Shorter waits are not sent."""
        struct.pack_into("=QQ", self._control_page, 16, distance, least_ns)

    def next_window(self) -> None:
        """From now on, every stack and thread name is shipped once more."""
        self._epoch = (self._epoch + 1) % (1 << 32)
        struct.pack_into("=I", self._control_page, 8, self._epoch)

    def set_period(self, period_ns: int) -> None:
        """Raises OSError."""
        self._events.set_period(period_ns)

    def pause(self) -> None:
        self._events.pause()

    def resume(self) -> None:
        self._events.resume()

    def follow_cpus(self) -> None:
        """Attaches the program to CPUs that came online. Raises OSError."""
        self._events.follow_cpus()

    def set_context(self, pid: int, place: TlsPlace, image: Image) -> None:
        """See Sampler.set_context. Raises OSError."""
        tls = place.offset, place.generation, place.module, place.dtv, place.entry_bytes
        slot = struct.pack("=QQqQIiHHHH", *image, *tls, place.kind, *place.go)
        self._contexts.update(struct.pack("=I", pid), slot)

    def forget(self, pid: int) -> None:
        self._contexts.delete(struct.pack("=I", pid))

    def _entry_map(self, table: str) -> Map:
        if table not in self._entries:
            self._entries[table] = Map(self.map_fd(table))
        return self._entries[table]

    def counters(self) -> dict[str, int]:
        """COUNTERS, each summed over the CPUs, since the start."""
        cpus = possible_cpus()
        counters = {}
        for index, name in enumerate(COUNTERS):
            value = self._counters.lookup(struct.pack("=I", index), 8 * cpus)
            counters[name] = int(np.frombuffer(value or b"", np.uint64).sum())
        return counters

    def run_stats(self) -> dict[str, int]:
        """`run_time_ns` and `run_count` of the program; 0 unless the sysctl kernel.bpf_stats_enabled is on."""
        return run_stats(self._program.fd)

    def close(self) -> None:
        self._events.close()
        self.samples.close()
        self.descriptions.close()
        self.requests.close()
        self._control_page.close()
        self._program.close()


def buffer_sizes(period_ns: int, cpus: int, with_off_cpu: bool = False) -> dict[str, int]:
    """Bytes of the buffers (16 and 64 MB for 64 CPUs at 999 Hz, 256 KB and 1 MB for 2 CPUs at 19 Hz); of `rows` and
    `waiting` the entries."""
    ticks = _BUFFERED_SECONDS * cpus * 1_000_000_000 // period_ns
    return {
        "samples": _power_of_two(ticks * 8 * SAMPLE_WORDS, *_SAMPLE_BUFFER),
        "descriptions": _power_of_two(ticks * _STACK_BYTES, *_STACK_BUFFER),
        "rows": _ROWS_BYTES >> ROW_PAGE_BITS,
        "waits": _power_of_two(cpus << 19, *_WAIT_BUFFER) if with_off_cpu else mmap.PAGESIZE,
        "waiting": MOST_WAITS if with_off_cpu else 1,
    }


def _power_of_two(wanted: int, least: int, most: int) -> int:
    return min(max(1 << max(wanted - 1, 0).bit_length(), least), most)
