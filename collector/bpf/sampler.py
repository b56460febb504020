"""Samples of every thread on every CPU, from the kernel to columns."""

import errno
import logging
from dataclasses import replace

import numpy as np

from collector.bpf import records
from collector.bpf.join_stacks import join
from collector.bpf.loaders.choose import LoadError
from collector.bpf.off_cpu import OffCpu, Waits
from collector.bpf.perf_event import PARANOID
from collector.bpf.program import Image, ProfileProgram, TlsPlace, image_of
from collector.bpf.samples import DrainedSamples

log = logging.getLogger(__name__)

MAX_FREQUENCY_HZ = 10_000
_NO_OFF_CPU = "there will be no off-CPU profile, the kernel does not permit it"
_LOST = ("lost_sample_buffer_full", "lost_stack_buffer_full", "lost_no_stack")
_NONE_AWAITED = np.empty(0, np.uint64)
PENDING_BYTES = 64 << 20  # in this process between two drains; beyond, the kernel's buffers fill and it counts the loss


class SamplerError(RuntimeError):
    """This machine cannot be profiled with these settings; the message says what is missing."""


def check(loader: str = "auto") -> str | None:
    """None when this process can profile this machine, else the reason. Loads the program and unloads it."""
    sampler = Sampler(1, loader)
    try:
        sampler.start()
    except SamplerError as error:
        return str(error)
    sampler.close()
    return None


class Sampler:
    """Call `start` (or first `load`), then `poll` about every second, and `drain` once per window. For one thread."""

    def __init__(
        self,
        frequency_hz: int,
        loader: str = "auto",
        sizes: dict[str, int] | None = None,
        waits: Waits | None = None,
    ) -> None:
        """`sizes` are those of the kernel's buffers, see ProfileProgram. `waits` says which waits to follow for the
        off-CPU profile; where the kernel does not permit it, logs an error and goes on without."""
        if not 1 <= frequency_hz <= MAX_FREQUENCY_HZ:
            raise SamplerError(f"a frequency of {frequency_hz} Hz: expected 1 to {MAX_FREQUENCY_HZ}")
        self.period_ns = round(1e9 / frequency_hz)  # the CPU time that one sample stands for
        self._loader, self._sizes, self._waits = loader, sizes, waits
        self._most_often_ns = self.period_ns
        self._off_cpu: OffCpu | None = None
        self._program: ProfileProgram | None = None
        self._samples: list[np.ndarray] = []
        self._descriptions: list[np.ndarray] = []
        self._before = records.parse_descriptions(np.empty(0, np.uint64), 0)
        self._lost_no_stack = 0
        self._lost_reported = 0

    def load(self) -> None:
        """Brings the program into the kernel. Raises SamplerError."""
        try:
            self._program = self._load_with_off_cpu() or ProfileProgram(self.period_ns, self._loader, self._sizes)
        except (LoadError, OSError) as error:
            raise SamplerError(f"cannot profile here: {error}{_advice(error)}") from error

    def start(self) -> None:
        """Runs the program on every online CPU; loads it first if that was not done. Raises SamplerError."""
        if self._program is None:
            self.load()
        try:
            self._running().start()
            self._follow_waits()
        except OSError as error:
            self.close()
            raise SamplerError(f"cannot profile here: {error}{_advice(error)}") from error

    def poll(self) -> np.ndarray:
        """Moves records into this process's memory, so that the kernel's buffers do not fill up.

        Returns the processes of the samples that it read (uint32, distinct).
        """
        program = self._running()
        if sum(part.nbytes for part in self._samples + self._descriptions) > PENDING_BYTES:
            return np.empty(0, np.uint32)
        samples = records.complete_samples(program.samples.unread())
        pids = np.unique(samples[:, 3].astype(np.uint32))
        if len(samples):
            self._samples.append(samples[:, 1:].copy())
            program.samples.consume(samples.size)
        if self._off_cpu:
            pids = np.union1d(pids, self._off_cpu.poll())
        # After the samples, so that the stack of each sample that was just read is there.
        descriptions = program.descriptions.unread()
        if words := records.complete_descriptions(descriptions, program.marker):
            self._descriptions.append(descriptions[:words].copy())
            program.descriptions.consume(words)
        return pids

    def drain(self) -> DrainedSamples:
        """Returns all samples since the last drain, each distinct stack once."""
        program = self._running()
        awaited = self._off_cpu.awaited() if self._off_cpu else _NONE_AWAITED
        self.poll()
        # A later sample may refer to a stack that was read before this. So the stacks of the window before are kept.
        program.next_window()
        samples = np.concatenate([np.empty((0, records.SAMPLE_WORDS - 1), np.uint64), *self._samples])
        words = np.concatenate([np.empty(0, np.uint64), *self._descriptions])
        self._samples, self._descriptions = [], []
        descriptions = records.parse_descriptions(words, program.marker)
        before, self._before = self._before, descriptions
        _follow_cpus(program)
        joined = join(samples, descriptions, before)
        self._lost_no_stack += joined.missing
        waits = self._off_cpu.drain(descriptions, before, awaited) if self._off_cpu else None
        return replace(joined.samples, lost=self._newly_lost(), off_cpu=waits)

    def set_context(self, pid: int, place: TlsPlace, image: Image | None = None) -> None:
        """From now on reads the trace contexts of this process and of children that it forks. `place` is where each
        thread has the variable that leads to its context. This is valid while the process executes the program for
        which the place was found (`image`; by default the one it executes now). May be called on any thread.

        Raises SamplerError when the process is gone or the table is full (8,192 processes).
        """
        try:
            self._running().set_context(pid, place, image or image_of(pid))
        except OSError as error:
            why = "the table is full" if error.errno == errno.E2BIG else str(error)
            raise SamplerError(f"the thread contexts of process {pid} cannot be read: {why}") from error

    def forget(self, pid: int) -> None:
        """Stops reading the contexts of this process. May be called on any thread."""
        self._running().forget(pid)

    def set_period(self, period_ns: int) -> None:
        """From now on a sample stands for this much CPU time. Call it right after a drain, so that a window has only
        one period. Raises OSError."""
        self._running().set_period(period_ns)
        self.period_ns = period_ns
        self._set_share(self._most_often_ns / period_ns)

    def pause(self) -> None:
        """Takes no samples until `resume`."""
        self._running().pause()
        self._set_share(0)

    def resume(self) -> None:
        self._running().resume()
        self._set_share(self._most_often_ns / self.period_ns)

    @property
    def program(self) -> ProfileProgram:
        """What runs in the kernel, with its tables and requests. Raises SamplerError when it is not running."""
        return self._running()

    def stats(self) -> dict[str, int]:
        """Totals since the start: program.COUNTERS, `lost_no_stack` (samples whose stack never came), and `run_time_ns`
        and `run_count` of the program as the kernel measured them."""
        program = self._running()
        return {**program.counters(), "lost_no_stack": self._lost_no_stack, **program.run_stats()}

    def off_cpu_stats(self) -> dict[str, int]:
        """Totals of the off-CPU program: `observed` (switches of threads on this host), `run_time_ns`, `run_count`;
        empty where it does not run."""
        return self._off_cpu.stats() if self._off_cpu else {}

    def close(self) -> None:
        if self._off_cpu:
            self._off_cpu.close()
        self._off_cpu = None
        if self._program:
            self._program.close()
        self._program = None

    def _running(self) -> ProfileProgram:
        if self._program is None:
            raise SamplerError("the sampler is not running: call start() first")
        return self._program

    def _load_with_off_cpu(self) -> ProfileProgram | None:
        if not self._waits:
            return None
        try:
            return ProfileProgram(self.period_ns, self._loader, self._sizes, with_off_cpu=True)
        except (LoadError, OSError) as error:
            log.error("%s: %s", _NO_OFF_CPU, error)
            self._waits = None
            return None

    def _follow_waits(self) -> None:
        if not self._waits or self._off_cpu:
            return
        try:
            self._off_cpu = OffCpu(self._running(), self._waits)
        except (LoadError, OSError) as error:
            log.error("%s: %s%s", _NO_OFF_CPU, error, _advice(error))

    def _set_share(self, part: float) -> None:
        if self._off_cpu:
            self._off_cpu.set_share(min(part, 1.0))

    def _newly_lost(self) -> int:
        total = sum(value for name, value in self.stats().items() if name in _LOST)
        newly, self._lost_reported = total - self._lost_reported, total
        return newly


def _follow_cpus(program: ProfileProgram) -> None:
    try:
        program.follow_cpus()
    except OSError as error:  # the samples that were read must not be lost; the next drain tries again
        log.warning("a CPU that came online is not profiled: %s", error)


def _advice(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f": needs root, or CAP_BPF and CAP_PERFMON ({PARANOID} is {PARANOID.read_text().strip()})"
    return ""
