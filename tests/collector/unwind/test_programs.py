"""Stacks of real programs, frame by frame, beside what the programs themselves call."""

import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from collector.batches.locations import locate
from collector.bpf.sampler import Sampler
from collector.bpf.samples import ENDS, DrainedSamples
from collector.host import Host
from collector.kernel import Kernel
from collector.processes.mapped_files import TRUNCATED
from tests.collector.unwind.programs import Program, build
from tests.collector.watching import watching
from tests.shares import compare_share
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf

FREQUENCY_HZ = 3999
RUN_CPU_S = 0.1
NOT_YET = [ENDS.index(reason) for reason in ("process not known yet", "no mapping", "no unwinding table")]
AT_ONCE = 2  # one for each CPU of a small machine


@dataclass
class Seen:
    """Samples of a program, by the functions of the whole stack, leaf first."""

    program: Program
    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def wrong(self) -> Counter[tuple[str, ...]]:
        """The stacks that do not show what was running, up to the outermost frame."""
        return Counter({stack: n for stack, n in self.stacks.items() if not self._is_right(stack)})

    def _is_right(self, stack: tuple[str, ...]) -> bool:
        chain = self.program.chain
        own = tuple(name for name in stack if name in set(chain))
        return (
            (bool(own) or self.program.has_others)
            and not stack[-1].startswith(TRUNCATED.file[:-1])
            and own == chain[len(chain) - len(own) :]
        )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Runs all programs, each until its tables were made, as for any file that a host meets first, and then on."""
    folder = tmp_path_factory.mktemp("programs")
    programs = list(build(folder))
    found = {}
    with watching(FREQUENCY_HZ) as (host, sampler):
        for i in range(0, len(programs), AT_ONCE):
            for seen in run(programs[i : i + AT_ONCE], host, sampler):
                found[seen.program.name] = seen
    return found


def test_stacks_of_every_program_are_what_it_calls_up_to_the_outermost_frame(seen: dict[str, Seen]) -> None:
    shares = {}
    for name, of_program in seen.items():
        total, wrong = sum(of_program.stacks.values()), of_program.wrong()
        # Enough for the shares below: a virtual CPU that is away for 40 ms takes no samples.
        assert total > FREQUENCY_HZ * RUN_CPU_S * 0.6, f"{name}: only {total} samples"
        shares[name] = 1 - sum(wrong.values()) / total
        compare_share(f"whole stacks of {name}", 1, shares[name], 1)
        if shares[name] < 0.99:
            print(name, f"{shares[name]:.2%}", *wrong.most_common(3), sep="\n  ")
    assert min(shares.values()) >= 0.985, shares  # a sample or two of a few hundred may be in between
    assert np.mean(list(shares.values())) >= 0.995, shares


def test_tables_of_a_program_are_not_known_by_the_samples_of_the_one_beside_it() -> None:
    none, first, other = np.zeros(0, np.uint64), 7, 8
    for pids, ends, known in (
        ([first] * 30, [0], False),
        ([first] * 30 + [other] * 10, [0], False),
        ([first] * 30 + [other] * 11, [0], True),
        ([first] * 30 + [other] * 11, [NOT_YET[0]], False),
    ):
        stack = np.zeros(len(pids), np.uint32)
        of_stack = [np.zeros(1, np.uint32)] * 3
        samples = DrainedSamples(
            none, np.array(pids, np.uint32), none, stack, none, *of_stack, none, np.array(ends, np.uint8), none, none,
            none,
        )  # fmt: skip
        assert are_known(samples, [first, other]) == known


def run(programs: list[Program], host: Host, sampler: Sampler) -> list[Seen]:
    started = [subprocess.Popen(p.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for p in programs]
    try:
        for process in started:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            process.stdin.write(b"go\n")
            process.stdin.flush()
        pids = [process.pid for process in started]
        wait_until_known(sampler, pids)
        wait_until_run(pids)
        samples = sampler.drain()
    finally:
        for process in started:
            process.kill()
            process.communicate()
    stacks = locate(samples, host.mappings, Kernel())
    names = [function_names(stacks.mappings[m].file) if m else None for m in range(len(stacks.mappings))]
    functions = []
    for mapping, address, name in zip(stacks.mapping.tolist(), stacks.address, stacks.name.tolist(), strict=True):
        functions.append(stacks.names[name].function if name else name_of(names[mapping], address))
    ends = np.cumsum(stacks.depth)
    found = {process.pid: Seen(program) for process, program in zip(started, programs, strict=True)}
    for pid, stack in zip(samples.pid.tolist(), stacks.row.tolist(), strict=True):
        if pid in found:
            rows = stacks.frames[ends[stack] - stacks.depth[stack] : ends[stack]]
            found[pid].stacks[tuple(functions[row] for row in rows.tolist())] += 1
    return list(found.values())


def wait_until_known(sampler: Sampler, pids: list[int]) -> None:
    """Until their tables are there: they are loaded when a walk meets a file for the first time on this host.

    Between looks the programs stand still: making the tables of Go's takes seconds, and is what the CPUs are for.
    """
    until, pause_s = time.monotonic() + PATIENCE_S, 0.05
    while time.monotonic() < until:
        time.sleep(0.05)
        samples = sampler.drain()
        if are_known(samples, pids):
            return
        send(signal.SIGSTOP, pids)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.8)
        sampler.drain()
        send(signal.SIGCONT, pids)
    raise AssertionError(f"no tables within {PATIENCE_S:.0f} s")


def are_known(samples: DrainedSamples, pids: list[int]) -> bool:
    """Whether each program has more than a few samples, and none that waits for tables. One program alone may have
    all samples of a short time on a busy machine."""
    waits = np.isin(samples.stack_end[samples.stack], NOT_YET)
    return all((samples.pid == pid).sum() > 10 and not waits[samples.pid == pid].any() for pid in pids)


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


def wait_until_run(pids: list[int]) -> None:
    until, clocks = time.monotonic() + 300, [~pid << 3 | 2 for pid in pids]
    begun = [time.clock_gettime(clock) for clock in clocks]
    while (
        min(time.clock_gettime(clock) - then for clock, then in zip(clocks, begun, strict=True)) < RUN_CPU_S
    ):  # CPU clocks: clock_getcpuclockid(3)
        assert time.monotonic() < until
        time.sleep(0.02)


def function_names(path: str) -> tuple[np.ndarray, list[str]] | None:
    """Start addresses (uint64) and names of a program's functions; None for a file that is not one of ours."""
    if "/programs" not in path:
        return None
    listed = subprocess.run(["nm", path.removesuffix("-stripped")], capture_output=True, text=True, check=True).stdout
    rows = sorted((int(row[0], 16), row[2]) for row in map(str.split, listed.splitlines()) if len(row) == 3)
    rows = [(start, name) for start, name in rows if start]
    return np.array([start for start, _ in rows], np.uint64), [plain(name) for _, name in rows]


def name_of(names: tuple[np.ndarray, list[str]] | None, address: np.uint64) -> str:
    if names is None:
        return "?"
    at = int(np.searchsorted(names[0], address, side="right")) - 1
    return names[1][at] if at >= 0 else "?"


def plain(name: str) -> str:
    """Without what compilers append to the parts of a function, and without Rust's mangling."""
    for rust in ("spin", "descend", "main"):
        if name.startswith("_RNv") and name.endswith(rust):
            return rust
    return name if name.startswith(("main.", "runtime.")) else name.partition(".")[0]
