"""The sampler on this kernel: real eBPF, real processes."""

import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from collector.bpf.sampler import Sampler, SamplerError, check
from collector.bpf.samples import DrainedSamples
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.unwind.tables.cache import TableCache
from tests.endless import endless
from tests.not_clocked import NotClocked
from tests.open_files import EBPF, open_files
from tests.unwind_tables import tables
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf
PROGRAMS = Path(__file__).parents[1] / "programs"
# Both loaders load one source. What does not depend on how each finds the fields of the kernel's structures is tested
# with one of them; `make soak` tests it with both.
ONE_LOADER = pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.soak)], indirect=True)


@dataclass
class Run:
    """What the sampler saw of one run of `busy`."""

    pid: int
    clocks: dict[int, int]  # thread -> nanoseconds of its CPU clock
    names: dict[int, str]  # address -> function of the program
    drains: list[DrainedSamples] = field(default_factory=list)

    def stacks(self) -> Counter[tuple[str, ...]]:
        """Functions of the program, leaf first -> samples of its threads."""
        found: Counter[tuple[str, ...]] = Counter()
        for drain in self.drains:
            ends = np.cumsum(drain.stack_depth)
            starts = ends - drain.stack_depth + drain.stack_kernel_depth
            for tid, stack in zip(drain.tid.tolist(), drain.stack.tolist(), strict=True):
                if tid in self.clocks:
                    found[tuple(self._function(a) for a in drain.frames[starts[stack] : ends[stack]].tolist())] += 1
        return found

    def whole(self) -> bool:
        """Whether nearly all samples have a stack up to its outermost frame."""
        cut = [(d.stack_end[d.stack[d.pid == self.pid]] > 0).tolist() for d in self.drains]
        return sum(map(sum, cut)) < 0.1 * sum(map(len, cut))

    def _function(self, address: int) -> str:
        below = [start for start in self.names if start <= address]
        return self.names[max(below)] if below and address - max(below) < 4096 else "?"


@contextmanager
def running(frequency_hz: int, loader: str = "auto", **options: dict[str, int]) -> Iterator[Sampler]:
    sampler = Sampler(frequency_hz, loader, **options)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.close()


@contextmanager
def walking(sampler: Sampler) -> Iterator[None]:
    """User stacks are walked to their ends."""
    host = Host(sampler.program, FileCache(), TableCache(tables()))
    host.start()
    try:
        yield
    finally:
        host.close()


def profile(
    busy: Path, sampler: Sampler, threads: int, milliseconds: int, depth: int = 3, drain_every: float = 0.5
) -> Run:
    command = [busy, str(threads), str(milliseconds), str(depth)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin
    assert process.stdout
    assert process.stdout.read(6) == b"ready\n"
    run = Run(process.pid, {}, functions(busy, process.pid))
    sampler.drain()
    process.stdin.write(b"\n")
    output, until = b"", time.monotonic() + 300
    while output.count(b"\n") < threads:
        assert time.monotonic() < until
        if select.select([process.stdout], [], [], drain_every)[0]:
            output += process.stdout.read(4096)
        else:
            run.drains.append(sampler.drain())
    run.drains.append(sampler.drain())
    run.clocks = {int(tid): int(ns) for tid, ns in (line.split() for line in output.splitlines())}
    process.communicate()
    return run


def meet(busy: Path, sampler: Sampler) -> None:
    """Runs the program until its stacks are whole: its tables are made when it is met first."""
    for _ in range(50):
        if profile(busy, sampler, threads=1, milliseconds=100).whole():
            return


def functions(program: Path, pid: int) -> dict[int, str]:
    base = int(Path(f"/proc/{pid}/maps").read_text().split("-", 1)[0], 16)
    listed = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listed.splitlines())
    return {base + int(row[0], 16): row[2] for row in rows if len(row) == 3 and row[1] in "tT"}


@ONE_LOADER
def test_functions_of_a_program_show_with_their_share_and_their_callers(busy: Path, loader: str) -> None:
    with running(3999, loader) as sampler, walking(sampler):
        meet(busy, sampler)
        run = profile(busy, sampler, threads=2, milliseconds=1125)
    stacks = run.stacks()
    total = sum(stacks.values())
    of = {leaf: sum(n for s, n in stacks.items() if s and s[0] == leaf) for leaf in ("three_quarters", "one_quarter")}
    # Of 9,000 samples the share of one function has a standard deviation of 0.5 %.
    assert of["three_quarters"] / sum(of.values()) == pytest.approx(0.75, abs=0.03)
    chain = ("work", "descend", "descend", "descend", "descend", "run")
    assert sum(n for s, n in stacks.items() if s[1:7] == chain) / total > 0.97


# Beside other programs, when a thread has a CPU and when it is sampled may be in step.
@pytest.mark.parametrize(
    "loader",
    [pytest.param("libbpf", marks=pytest.mark.alone), pytest.param("bcc", marks=pytest.mark.soak)],
    indirect=True,
)
def test_samples_times_period_is_the_cpu_time_of_the_threads(busy: Path, loader: str) -> None:
    found = []
    for _ in range(3):  # a virtual CPU may be away, which a thread's clock counts and no sample shows
        with running(1999, loader) as sampler:
            not_clocked = NotClocked()
            run = profile(busy, sampler, threads=2, milliseconds=1000)
            most = 1.03 + not_clocked.share()
            stats = sampler.stats()
        sampled, lost = sum(run.stacks().values()), sum(drain.lost for drain in run.drains)
        expected = sum(run.clocks.values()) / sampler.period_ns
        assert sampled / expected < most
        assert stats["lost_no_stack"] == 0
        found.append((sampled + lost) / expected)  # some are lost where this process does not get to read them in time
        if found[-1] > 0.97:
            break
    assert max(found) > 0.97


def test_each_distinct_stack_of_a_window_is_there_once(busy: Path) -> None:
    with running(1999) as sampler:
        run = profile(busy, sampler, threads=2, milliseconds=500, drain_every=0.25)
    for drain in run.drains:
        starts = np.cumsum(drain.stack_depth) - drain.stack_depth
        stacks = [
            (pid, kernel, drain.frames[start : start + depth].tobytes())
            for pid, kernel, start, depth in zip(
                drain.stack_pid.tolist(),
                drain.stack_kernel_depth.tolist(),
                starts.tolist(),
                drain.stack_depth.tolist(),
                strict=True,
            )
        ]
        assert len(set(stacks)) == len(stacks)
        assert set(drain.stack.tolist()) == set(range(len(stacks)))
        assert int(drain.stack_depth.sum()) == len(drain.frames)
    busiest = max(run.drains, key=lambda drain: int((drain.pid == run.pid).sum()))
    of_program = busiest.stack[busiest.pid == run.pid]
    assert len(np.unique(of_program)) < len(of_program) / 4


@ONE_LOADER
def test_threads_have_the_names_they_gave_themselves(busy: Path, loader: str) -> None:
    with running(999, loader) as sampler:
        run = profile(busy, sampler, threads=3, milliseconds=150, drain_every=10)
    names = {tid: name for drain in run.drains for tid, name in drain.comms.items()}
    assert sorted(names[tid] for tid in run.clocks) == ["busy-0", "busy-1", "busy-2"]


def test_times_are_on_the_monotonic_clock_and_no_idle_task_is_sampled(busy: Path) -> None:
    before = time.monotonic_ns()
    with running(199) as sampler:
        run = profile(busy, sampler, threads=1, milliseconds=300)
    after = time.monotonic_ns()
    times = np.concatenate([drain.time_monotonic_ns for drain in run.drains])
    assert before < times.min() <= times.max() < after
    assert all((drain.pid > 0).all() for drain in run.drains)


@ONE_LOADER
def test_the_deepest_frames_are_cut_where_a_stack_is_too_deep_and_that_is_counted(busy: Path, loader: str) -> None:
    most = {"libbpf": 512, "bcc": 128}[loader]
    with running(199, loader) as sampler, walking(sampler):
        meet(busy, sampler)
        run = profile(busy, sampler, threads=1, milliseconds=500, depth=700)
        stats = sampler.stats()
    stacks = run.stacks()
    assert max(map(len, stacks)) == most
    assert stats["stack_too_deep"] >= sum(n for s, n in stacks.items() if len(s) == most) > 0


def test_what_does_not_fit_into_the_buffer_is_counted_as_lost(busy: Path) -> None:
    with running(1999, sizes={"samples": 4096}) as sampler:
        run = profile(busy, sampler, threads=2, milliseconds=500, drain_every=60)
        stats = sampler.stats()
    kept, lost = sum(len(d.time_monotonic_ns) for d in run.drains), sum(d.lost for d in run.drains)
    assert lost > 500
    assert lost <= stats["lost_sample_buffer_full"]  # it goes on losing after the drain
    sampled_ns = (sum(run.stacks().values()) + lost) * sampler.period_ns
    assert kept < 300
    assert sampled_ns > 0.97 * sum(run.clocks.values())


def test_stacks_that_do_not_fit_are_counted_as_lost_and_every_sample_kept_has_its_stack(busy: Path) -> None:
    with running(1999, sizes={"descriptions": 4096}) as sampler, walking(sampler):
        run = profile(busy, sampler, threads=2, milliseconds=500, depth=100, drain_every=60)
        stats = sampler.stats()
    assert stats["lost_stack_buffer_full"] > 0
    assert stats["lost_no_stack"] == 0
    assert sum(drain.lost for drain in run.drains) > 0
    for drain in run.drains:
        assert (drain.stack < len(drain.stack_depth)).all()


def test_polling_without_draining_stays_within_bounded_memory_and_keeps_what_it_can(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.bpf.sampler.PENDING_BYTES", 10_000)
    with running(1999, sizes={"samples": 1 << 16}) as sampler:
        process = subprocess.Popen(
            [busy, "2", "1000", "3"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        until = time.monotonic() + 1.5
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        while time.monotonic() < until:
            sampler.poll()
            time.sleep(0.025)
        drain = sampler.drain()
        process.communicate()
    assert len(drain.time_monotonic_ns) * 56 < 10_000 + (1 << 17)
    assert drain.lost > 0


def test_polls_name_the_processes_they_saw_and_drains_in_quick_succession_are_empty_but_whole(busy: Path) -> None:
    with running(999) as sampler:
        process = subprocess.Popen([busy, "1", "300", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        process.communicate(b"\n")
        assert process.pid in sampler.poll().tolist()
        assert process.pid in sampler.drain().pid
        for _ in range(20):
            drain = sampler.drain()
            assert len(drain.stack) == len(drain.context) == len(drain.time_monotonic_ns)
            assert (drain.stack < len(drain.stack_depth)).all()
        assert sampler.stats()["lost_no_stack"] == 0


def test_without_privileges_the_error_says_what_is_missing() -> None:
    code = "from collector.bpf.sampler import check; print(check())"
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(
        [*nobody, sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "cannot profile here" in said
    assert "needs root, or CAP_BPF and CAP_PERFMON" in said


@ONE_LOADER  # that nothing is left behind by BCC is in loaders/test_bcc.py
def test_this_machine_can_be_profiled_and_the_check_leaves_nothing_behind(loader: str) -> None:
    descriptors = open_files(*EBPF)
    assert check(loader) is None
    assert open_files(*EBPF) == descriptors


@pytest.mark.parametrize("frequency", [0, -1, 10**9])
def test_an_absurd_frequency_is_refused(frequency: int) -> None:
    with pytest.raises(SamplerError, match="expected 1 to"):
        Sampler(frequency)


def test_asking_a_sampler_that_is_not_running_is_an_error() -> None:
    with pytest.raises(SamplerError, match="start"):
        Sampler(19).drain()


def test_a_walk_that_lost_its_way_ends_where_no_code_can_be() -> None:
    """CPython is built without frame pointers: what the walk takes for one often leads to a return address of 0."""
    with endless("while True: sorted(str(i) for i in range(1000))") as program:
        sampler, clock = Sampler(1999), ~program.pid << 3 | 2  # clock_getcpuclockid(3)
        sampler.start()
        until = time.clock_gettime(clock) + 0.3
        wait_until(lambda: time.clock_gettime(clock) > until)
        samples = sampler.drain()
        sampler.close()
    assert (samples.pid == program.pid).sum() > 100
    first = np.cumsum(samples.stack_depth) - samples.stack_depth
    called = np.ones(len(samples.frames), bool)  # return addresses: all frames but the first of each part
    called[first[samples.stack_depth > 0]] = False
    called[(first + samples.stack_kernel_depth)[samples.stack_depth > samples.stack_kernel_depth]] = False
    assert (samples.frames[called] >= 65536).all()
