"""What Python frames cost in the kernel: microseconds of the eBPF programs per sample, with and without them.

    python -m benchmarks.python_frames [--seconds 2] [--rounds 5]

Samples one process, 13 Python functions deep, 1,000 times a second. Prints one JSON object: medians of all rounds;
each round measures both. Needs root.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.bpf.perf_event import open_clock
from collector.bpf.sampler import Sampler
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.runtimes.processes import NONE_FOUND
from collector.unwind.tables.cache import TableCache

BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
PERIOD_NS = 1_000_000
DEPTH = 13
SPIN = f"""
def spin(depth):
    while depth == 1:
        for i in range(1000):
            i * i
    spin(depth - 1)
spin({DEPTH - 1})
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each round (default: 2)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args(argv)
    before = BPF_STATS.read_text()
    BPF_STATS.write_text("1")
    try:
        with tempfile.TemporaryDirectory() as folder, spinning() as pid:
            rounds = [measure(pid, Path(folder), arguments.seconds) for _ in range(arguments.rounds)]
    finally:
        BPF_STATS.write_text(before)
    print(json.dumps({name: round(statistics.median(r[name] for r in rounds), 2) for name in rounds[0]}))
    return 0


@contextmanager
def spinning() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def measure(pid: int, folder: Path, seconds: float) -> dict[str, float]:
    """One round."""
    with_python, user, python = per_sample(pid, folder, seconds, True)
    without, _, _ = per_sample(pid, folder, seconds, False)
    return {
        "us_per_sample": with_python,
        "us_without_python": without,
        "us_of_python": with_python - without,
        "native_frames": user,
        "python_frames": python,
    }


def per_sample(pid: int, folder: Path, seconds: float, python: bool) -> tuple[float, float, float]:
    """Microseconds, native frames and Python frames of a sample."""
    sampler = Sampler(round(1e9 / PERIOD_NS))
    sampler.load()
    sampler.pause()  # no other process
    host = Host(sampler.program, FileCache(), TableCache(folder))
    if not python:
        host.runtimes.changed = lambda pid, ranges: NONE_FOUND  # type: ignore[method-assign]
    host.start()
    event = open_clock(sampler.program.program_fd("profile"), PERIOD_NS, -1, pid)
    try:
        wait_until_walked(sampler, host, pid)
        before = sampler.stats()
        time.sleep(seconds)
        after, samples = sampler.stats(), sampler.drain()
    finally:
        os.close(event)
        host.close()
        sampler.close()
    runs = after["run_count"] - before["run_count"]
    us = (after["run_time_ns"] - before["run_time_ns"]) / runs / 1000
    return us, float(samples.stack_depth.mean()), float(samples.stack_managed.mean())


def wait_until_walked(sampler: Sampler, host: Host, pid: int) -> None:
    """Until the tables are there that walks ask for."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.5)
        samples = sampler.drain()
        complete = samples.stack_end[samples.stack] == 0
        if len(complete) and complete.mean() > 0.9:
            return
    raise RuntimeError(f"the stacks of process {pid} cannot be walked")


if __name__ == "__main__":
    sys.exit(main())
