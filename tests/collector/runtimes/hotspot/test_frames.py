"""Stacks of real JVMs, beside the calls that are known and the times that the program itself has measured."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from collector.batches.locations import locate
from collector.bpf.sampler import Sampler
from collector.bpf.samples import DrainedSamples
from collector.host import Host
from collector.kernel import Kernel
from tests.collector.activity.flooding import open_folder
from tests.collector.hanging import USER
from tests.collector.runtimes.hotspot.jvms import EACH, NEEDS_JAVA, SOURCES, homes, started, version
from tests.collector.watching import watching
from tests.memory import resident_bytes
from tests.shares import compare_share
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.ebpf, NEEDS_JAVA]
FREQUENCY_HZ = 499
SAMPLES = 250
SHARES = ("Known.sixty", "Known.thirty", "Known.ten")
NATIVE_CALLBACKS = (
    "-Dsun.reflect.inflationThreshold=2147483647",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Djdk.reflect.useNativeAccessorOnly=true",
)


@dataclass
class Seen:
    """Functions of each stack, from the leaf on, and how often it was seen."""

    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, pid: int, samples: DrainedSamples, host: Host) -> None:
        stacks = locate(samples, host.mappings, Kernel(), host.runtimes)
        ends = np.cumsum(stacks.depth)
        for sampled, row in zip(samples.pid.tolist(), stacks.row.tolist(), strict=True):
            if sampled == pid:
                frames = stacks.frames[ends[row] - stacks.depth[row] : ends[row]].tolist()
                self.stacks[tuple(stacks.names[stacks.name[frame]].function for frame in frames)] += 1

    def of(self, function: str) -> Counter[tuple[str, ...]]:
        return Counter({stack: n for stack, n in self.stacks.items() if function in stack})

    def whole(self) -> float:
        """The share of stacks with a function of the program that reach its start, with all 61 calls."""
        own = self.of("Known.work")
        cut = Counter({stack: n for stack, n in self.stacks.items() if "truncated" in stack[-1]})
        wrong = cut + Counter({stack: n for stack, n in own.items() if not is_right(stack)})
        for stack, n in wrong.most_common(2):
            print(n, *stack, sep="\n  ")
        assert own.total() > SAMPLES / 4
        return 1 - wrong.total() / self.stacks.total()


def is_right(stack: tuple[str, ...]) -> bool:
    in_leaf = any(function in SHARES for function in stack)
    return not in_leaf or stack.count("Known.recurse") == 61


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Host, Sampler]]:
    with watching(FREQUENCY_HZ, "libbpf") as both:
        yield both


def run(
    watched: tuple[Host, Sampler], home: Path, *options: str, program: tuple[str, ...] = ("Known",), warm_s: float = 1.5
) -> tuple[Seen, list[int]]:
    """What is seen of a program, and its own times in its three functions meanwhile."""
    host, sampler = watched
    with started(home, *options, program=program) as process:
        until = time.monotonic() + warm_s
        while not host.ready(process.pid) or time.monotonic() < until:
            time.sleep(0.05)
        before = times(process)
        sampler.drain()
        seen, until = Seen(), time.monotonic() + PATIENCE_S
        while seen.stacks.total() < SAMPLES and time.monotonic() < until:
            time.sleep(0.2)
            seen.add(process.pid, sampler.drain(), host)
        return seen, [after - at for at, after in zip(before, times(process), strict=True)]


def times(process: subprocess.Popen[bytes]) -> list[int]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"\n")
    process.stdin.flush()
    return [int(number) for number in process.stdout.readline().split()]


@EACH
def test_stacks_reach_the_start_of_the_thread_with_the_shares_of_the_program(
    watched: tuple[Host, Sampler], home: Path
) -> None:
    seen, spent = run(watched, home)
    compare_share(f"whole stacks of Java {version(home)}", 1, seen.whole(), 0.01)
    in_leaf = [seen.of(function).total() for function in SHARES]
    for function, n, own in zip(SHARES, in_leaf, spent, strict=True):
        compare_share(f"{function} of Java {version(home)}", own / sum(spent), n / sum(in_leaf), 0.12)


MODES = {
    "interpreted": ("-Xint",),
    "C1": ("-XX:TieredStopAtLevel=1",),
    "C2": ("-XX:-TieredCompilation",),
    "frame pointers": ("-XX:+PreserveFramePointer",),
    "native callbacks": NATIVE_CALLBACKS,
    "other collector": ("-XX:+UseZGC",),
}


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@EACH
def test_stacks_are_whole_however_the_program_runs(watched: tuple[Host, Sampler], home: Path, mode: str) -> None:
    seen, _ = run(watched, home, *MODES[mode])
    compare_share(f"whole stacks of Java {version(home)}, {mode}", 1, seen.whole(), 0.01)
    callbacks = seen.of("Known.calledBack")
    assert callbacks
    if mode == "native callbacks":
        assert all("call_stub" in stack[stack.index("Known.calledBack") :] for stack in callbacks)


@pytest.mark.soak
@EACH
def test_stacks_are_whole_while_the_program_is_compiled(watched: tuple[Host, Sampler], home: Path) -> None:
    for _ in range(2):  # the first time, tables of the JVM's own code may still be built
        seen, _ = run(watched, home, warm_s=0.5)  # looking at a new JVM takes a moment, too
    compare_share(f"whole stacks of Java {version(home)}, warming up", 1, seen.whole(), 0.05)


@pytest.mark.soak
@pytest.mark.parametrize("home", [home for home in homes() if version(home) >= 21], ids=lambda home: home.name)
def test_stacks_of_virtual_threads_reach_their_start(watched: tuple[Host, Sampler], home: Path) -> None:
    seen, _ = run(watched, home, program=("Known", "virtual"))
    compare_share(f"whole stacks of virtual threads of Java {version(home)}", 1, seen.whole(), 0.01)
    assert all("jdk.internal.vm.Continuation.enterSpecial" in stack for stack in seen.of("Known.work"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def test_a_process_that_lies_about_its_jvm_harms_no_other(watched: tuple[Host, Sampler], folder: Path) -> None:
    host, sampler = watched
    library, program = homes()[0] / "lib/server/libjvm.so", folder / "lying"
    subprocess.run(["gcc", "-O1", SOURCES / "lying.c", "-o", program, "-ldl"], check=True)
    command = ["setpriv", "--reuid", str(USER), "--clear-groups", program, library, str(time.time_ns() % 1000)]
    with started(homes()[0]) as honest, subprocess.Popen(command, stdout=subprocess.PIPE) as liar:
        try:
            assert liar.stdout
            assert liar.stdout.readline() == b"ready\n"
            first = Seen()
            while all("truncated" in stack[-1] for stack in first.of("Known.work")):  # its JVM and its tables are read
                time.sleep(0.05)
                first.add(honest.pid, sampler.drain(), host)
            seen, lied, cpu_s, memory = Seen(), Seen(), time.process_time(), resident_bytes()
            until = time.monotonic() + PATIENCE_S
            while min(seen.stacks.total(), lied.stacks.total()) < SAMPLES and time.monotonic() < until:
                time.sleep(0.2)
                samples = sampler.drain()
                seen.add(honest.pid, samples, host)
                lied.add(liar.pid, samples, host)
            assert liar.poll() is None, liar.args
        finally:
            liar.kill()
    assert lied.stacks.total() >= SAMPLES
    assert any("[hotspot]" in stack for stack in lied.stacks)  # it is believed to be a JVM
    compare_share("whole stacks beside a process that lies", 1, seen.whole(), 0.01)
    print(f"{time.process_time() - cpu_s:.1f} CPU s, {(resident_bytes() - memory) / 1e6:.0f} MB more")
    assert resident_bytes() - memory < 64_000_000
    assert {name for stack in lied.stacks for name in stack if name.startswith("Known.")} == set()
