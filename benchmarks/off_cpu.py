"""What following waits costs: time of the eBPF program at each switch of threads, and how many switches remain.

    python -m benchmarks.off_cpu [--seconds 3]

Two processes wake each other through pipes on one CPU. They do nothing but wait, which is the worst case. Prints one
JSON object, for each share of waits that is followed: nanoseconds of the program per switch and per followed wait, as
the kernel measures them (measuring itself takes some tens of nanoseconds, which is most of `nothing_followed`), and the
switches a second compared with those without any program, median of 5. Needs root.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.bpf.off_cpu import Waits
from collector.bpf.sampler import Sampler
from collector.guest.own_cpu import enable_stats
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.unwind.tables.cache import TableCache

SHARES = {"nothing_followed": 1e-9, "share_0.01": 0.01, "share_0.1": 0.1, "share_1": 1.0}
ROUNDS = 5
AT_ONCE = 200
WARM_UP_S = 5.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds to measure for each share (default: 3)")
    seconds = parser.parse_args(argv).seconds / ROUNDS
    with _partner() as ends:
        figures: dict[str, object] = {name: measure(share, seconds, ends) for name, share in SHARES.items()}
        print(json.dumps(figures | {"ns_per_followed_wait_unwound": unwound(seconds * ROUNDS, ends)}))
    return 0


def measure(share: float, seconds: float, ends: tuple[int, int]) -> dict[str, float]:
    """Figures of one share. Rounds with the program and without it take turns."""
    throughput, per_switch, per_wait = [], [], []
    for _ in range(ROUNDS):
        without = exchanges(seconds, ends)
        sampler = Sampler(1, waits=Waits(share, 1_000_000))
        sampler.start()
        throughput.append(exchanges(seconds, ends) / without)
        measuring = enable_stats()
        before, waits = sampler.off_cpu_stats(), sampler.stats()["off_cpu_followed"]
        exchanges(seconds, ends)
        after, waits = sampler.off_cpu_stats(), sampler.stats()["off_cpu_followed"] - waits
        time_ns = after["run_time_ns"] - before["run_time_ns"]
        per_switch.append(time_ns / max(after["run_count"] - before["run_count"], 1))
        per_wait.append(time_ns / waits if waits else 0)
        if measuring is not None:
            os.close(measuring)
        sampler.close()
    return {
        "ns_per_switch": round(statistics.median(per_switch)),
        "ns_per_followed_wait": round(statistics.median(per_wait)),
        "switches_kept": round(statistics.median(throughput), 3),
    }


def unwound(seconds: float, ends: tuple[int, int]) -> int:
    """Nanoseconds of the program per wait, all of them followed, where the whole stack is walked: as in a collector."""
    with tempfile.TemporaryDirectory() as folder:
        sampler = Sampler(1, waits=Waits(1, 1_000_000))
        sampler.load()
        host = Host(sampler.program, FileCache(), TableCache(Path(folder)))
        host.start()
        sampler.start()
        until = time.monotonic() + WARM_UP_S
        while time.monotonic() < until:
            exchanges(0.2, ends)
            sampler.drain()
        measuring = enable_stats()
        before, waits = sampler.off_cpu_stats(), sampler.stats()["off_cpu_followed"]
        exchanges(seconds, ends)
        after, waits = sampler.off_cpu_stats(), sampler.stats()["off_cpu_followed"] - waits
        if measuring is not None:
            os.close(measuring)
        host.close()
        sampler.close()
    return round((after["run_time_ns"] - before["run_time_ns"]) / waits)


def exchanges(seconds: float, ends: tuple[int, int]) -> float:
    """Returns how many there are in a second."""
    began, done = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        for _ in range(AT_ONCE):
            os.write(ends[1], b"x")
            os.read(ends[0], 1)
        done += AT_ONCE
    return done / (time.monotonic() - began)


@contextmanager
def _partner() -> Iterator[tuple[int, int]]:
    """A process on the same CPU that answers each byte; the descriptors to read from and to write to."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    (there, to_it), (from_it, back) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_it)
        while byte := os.read(there, 1):
            os.write(back, byte)
        os._exit(0)
    try:
        yield from_it, to_it
    finally:
        os.close(to_it)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, cpus)


if __name__ == "__main__":
    sys.exit(main())
