"""What runs in the virtual machine: the collector beside programs whose stacks, contexts and waits are known.

Prints a line for each with the share of its samples, or of its waiting, that is as it must be. Costs mean nothing here,
as everything is emulated.
"""

import platform
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collector.bpf.off_cpu import Waits
from collector.bpf.sampler import Sampler
from collector.host import Host
from tests import unwind_tables
from tests.collector.activity import test_thread_context
from tests.collector.activity.publishing import go_on, line, read_contexts
from tests.collector.bpf import test_off_cpu
from tests.collector.runtimes.python import test_frames
from tests.collector.unwind import test_programs
from tests.collector.unwind.programs import HERE, SCENARIOS, Program
from tests.collector.watching import watching

FREQUENCY_HZ = 499
ENOUGH = 0.97
ENOUGH_WAITS = 0.85  # what a call computes beside waiting takes long on an emulated CPU
CHAINS = ("chain", "recursion", "alloca", "libc", "signal", "vdso", "kernel", "threads", "plugin")
BUILDS = {
    "gcc -O2": (["-O2", "-fomit-frame-pointer"], CHAINS),
    "gcc -O3": (["-O3"], ("chain", "recursion")),
    "frame pointers": (["-O2", "-fno-omit-frame-pointer"], ("chain", "signal")),
}
CONTEXTS = ("descriptor in static TLS", "descriptor", "__tls_get_addr")


class Share(NamedTuple):
    name: str
    right: float
    detail: str = ""
    enough: float = ENOUGH


def main() -> int:
    print(platform.uname())
    folder = Path("/tmp/programs")
    folder.mkdir()
    unwind_tables.share()
    bad = []
    with watching(FREQUENCY_HZ, waits=Waits(1, test_off_cpu.MS)) as (host, sampler):
        for scenario in (python, contexts, waits, native):
            try:
                for share in scenario(folder, host, sampler):
                    print(f"{share.name}: {share.right:.1%} {share.detail}", flush=True)
                    if share.right < share.enough:
                        bad.append(share.name)
            except AssertionError:
                traceback.print_exc()
                bad.append(scenario.__name__)
        print({name: count for name, count in sampler.stats().items() if count})
    print("failed:" if bad else "passed", ", ".join(bad))
    return bool(bad)


def native(folder: Path, host: Host, sampler: Sampler) -> Iterator[Share]:
    """Whole stacks."""
    chosen, at_once = list(programs(folder)), test_programs.AT_ONCE
    for i in range(0, len(chosen), at_once):
        for seen in test_programs.run(chosen[i : i + at_once], host, sampler):
            total, wrong = sum(seen.stacks.values()), seen.wrong()
            examples = "".join(f", {n} times {stack}" for stack, n in wrong.most_common(1))
            yield Share(seen.program.name, 1 - sum(wrong.values()) / max(total, 1), f"of {total} samples{examples}")


def programs(folder: Path) -> Iterator[Program]:
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", HERE / "plugin.c", "-o", folder / "plugin.so"], check=True)
    for name, (flags, scenarios) in BUILDS.items():
        executable = folder / name.replace(" ", "")
        subprocess.run(["gcc", *flags, HERE / "chain.c", "-o", executable, "-pthread"], check=True)
        for scenario in scenarios:
            yield Program(
                f"{name}, {scenario}", (str(executable), scenario, str(folder / "plugin.so")), SCENARIOS[scenario]
            )


def contexts(folder: Path, _: Host, sampler: Sampler) -> Iterator[Share]:
    """Threads that switch their trace contexts all the time."""
    for kind in CONTEXTS:
        flags, libraries, compiler = test_thread_context.DTV[kind]
        own = folder / kind.replace(" ", "")
        own.mkdir()
        with test_thread_context.switching(own, *flags, libraries=libraries, compiler=compiler) as process:
            go_on(process)
            assert line(process) == "loaded"
            with read_contexts(sampler, process.pid):
                sampler.drain()  # while compilers ran, the buffers may have become full
                expected, shown = test_thread_context.contexts_of_moments(process, sampler)
        right = sum(one == other for one, other in zip(expected, shown, strict=True))
        yield Share(f"thread context, {kind}", right / max(len(expected), 1), f"of {len(expected)} samples")


def waits(folder: Path, _: Host, sampler: Sampler) -> Iterator[Share]:
    """The time in functions that wait, which the program measured itself."""
    program = test_off_cpu.build(folder / "waiting")
    seen = test_off_cpu.Watch(sampler).run(program, "long", 20)
    for function, measured_ns in seen.measured.items():
        right = seen.of(function) / max(measured_ns, 1)
        yield Share(f"off-CPU, {function}", right, f"of {measured_ns / 1e6:.0f} ms", ENOUGH_WAITS)


def python(_: Path, host: Host, sampler: Sampler) -> Iterator[Share]:
    words = ("nested", "threads")
    seen, _left = test_frames.run((host, sampler), sys.executable, str(test_frames.PROGRAM), *words)
    right = sum(n for stack, n in seen.stacks if test_frames.is_right(stack))
    yield Share("Python", right / max(seen.total(), 1), f"of {seen.total()} samples")


if __name__ == "__main__":
    sys.exit(main())
