"""What runs in the virtual machine: the collector beside programs whose stacks are known.

Prints a line for each with the share of its samples that show the whole chain. Costs and times mean nothing here, as
everything is emulated.
"""

import contextlib
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from collector.bpf.sampler import Sampler
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.unwind.tables.cache import TableCache
from tests.collector.runtimes.python import test_frames
from tests.collector.unwind import test_programs
from tests.collector.unwind.programs import HERE, SCENARIOS, Program

FREQUENCY_HZ = 199
ENOUGH = 0.97
CHAINS = ("chain", "recursion", "alloca", "libc", "signal", "vdso", "kernel", "threads", "plugin")
BUILDS = {
    "gcc -O2": ["-O2", "-fomit-frame-pointer"],
    "gcc -O3": ["-O3"],
    "frame pointers": ["-O2", "-fno-omit-frame-pointer"],
}


def main() -> int:
    print(platform.uname())
    folder = Path("/tmp/programs")
    folder.mkdir()
    shares: dict[str, float] = {}
    with watching(folder) as (host, sampler):
        for program in programs(folder):
            seen = test_programs.run([program], host, sampler)[0]
            total, wrong = sum(seen.stacks.values()), seen.wrong()
            shares[program.name] = 1 - sum(wrong.values()) / max(total, 1)
            print(
                f"{program.name}: {total} samples, {shares[program.name]:.1%} whole", *wrong.most_common(1), flush=True
            )
        seen_python, _ = test_frames.run((host, sampler), sys.executable, str(test_frames.PROGRAM), "nested", "threads")
        right = sum(n for stack, n in seen_python.stacks if test_frames.is_right(stack))
        shares["Python"] = right / max(seen_python.total(), 1)
        print(f"Python: {seen_python.total()} samples, {shares['Python']:.1%} right", flush=True)
        print({name: count for name, count in sampler.stats().items() if count})
    bad = {name: share for name, share in shares.items() if share < ENOUGH}
    print("failed:" if bad else "passed", bad or "")
    return bool(bad)


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[tuple[Host, Sampler]]:
    sampler = Sampler(FREQUENCY_HZ)
    sampler.load()
    host = Host(sampler.program, FileCache(), TableCache(folder / "tables"))
    host.start()
    sampler.start()
    try:
        yield host, sampler
    finally:
        host.close()
        sampler.close()


def programs(folder: Path) -> Iterator[Program]:
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", HERE / "plugin.c", "-o", folder / "plugin.so"], check=True)
    for name, flags in BUILDS.items():
        executable = folder / name.replace(" ", "")
        subprocess.run(["gcc", *flags, HERE / "chain.c", "-o", executable, "-pthread"], check=True)
        for scenario in CHAINS:
            yield Program(
                f"{name}, {scenario}", (str(executable), scenario, str(folder / "plugin.so")), SCENARIOS[scenario]
            )


if __name__ == "__main__":
    sys.exit(main())
