"""Programs that make numbered functions and drop them, for ever: names must be those of functions that were in use."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from collector.batches.locations import locate
from collector.bpf.sampler import Sampler
from collector.guest.memory import keep_small
from collector.host import Host
from collector.kernel import Kernel
from tests.memory import resident_bytes
from tests.shares import compare_share
from tests.waiting import PATIENCE_S, wait_until

FREQUENCY_HZ = 199
SECONDS = float(os.environ.get("ICESTREAM_CHURN_S", "10"))
MOST_WRONG_OF = 2000
"""One of so many stacks may have the name of another function: one whose memory was used again while it was read."""
_NUMBERED = re.compile(r"(?:^|\.)(?:[Uu]nit|inner|outer|step)(\d{6})")


@dataclass
class _Stacks:
    """Those of one process: all, the truncated ones, those with a function without a name; and the times (ns of
    the monotonic clock) and numbers of those with numbered functions."""

    all: int = 0
    cut: int = 0
    unnamed: int = 0
    numbered: list[tuple[int, set[int]]] = field(default_factory=list)

    def add(self, pid: int, host: Host, sampler: Sampler, unnamed: str) -> None:
        samples = sampler.drain()
        located = locate(samples, host.mappings, Kernel(), host.runtimes)
        ends = np.cumsum(located.depth)
        columns = samples.pid.tolist(), located.row.tolist(), samples.time_monotonic_ns.tolist()
        for _, row, time_ns in filter(lambda sample: sample[0] == pid, zip(*columns, strict=True)):
            frames = located.frames[ends[row] - located.depth[row] : ends[row]].tolist()
            functions = {located.names[located.name[frame]].function for frame in frames}
            self.all += 1
            self.cut += any(function.startswith("[truncated") for function in functions)
            self.unnamed += unnamed in functions
            if numbers := {int(number) for function in functions for number in _NUMBERED.findall(function)}:
                self.numbered.append((time_ns, numbers))


def check_names(host: Host, sampler: Sampler, process: subprocess.Popen[bytes], what: str, unnamed: str) -> None:
    """The program prints the number of each function, and when it was first and last in use (ns), until it reads a
    line."""
    assert process.stdin
    assert process.stdout
    keep_small()
    early, stacks, resident, used = _Stacks(), _Stacks(), list[float](), dict[int, tuple[int, int]]()
    readline = process.stdout.readline
    reader = threading.Thread(target=lambda: used.update(_uses(readline)))
    reader.start()

    def is_walked() -> bool:
        """Whether there are the unwinding tables of most of its files."""
        early.add(process.pid, host, sampler, unnamed)
        return early.all > early.cut and host.ready(process.pid)

    wait_until(is_walked)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or (len(stacks.numbered) < 100 and time.monotonic() < until + PATIENCE_S):
        time.sleep(1)
        stacks.add(process.pid, host, sampler, unnamed)
        host.runtimes.forget(host.mappings.expire())
        resident.append(resident_bytes() / 1e6)
    process.stdin.write(b"\n")
    process.stdin.flush()
    reader.join()
    wrong = [
        (number, time_ns, used.get(number))
        for time_ns, numbers in stacks.numbered
        for number in numbers
        if number not in used or not used[number][0] <= time_ns <= used[number][1]
    ]
    print(f"{what}: {len(used)} were made, {stacks.all} stacks, {resident[len(resident) // 2]:.0f} MB at half time")
    print(f"{len(wrong)} of {len(stacks.numbered)} stacks have wrong names; {resident[-1]:.0f} MB at the end")
    print(*wrong[:5], *(f"{mb:.0f}" for mb in resident[:: max(len(resident) // 12, 1)]), sep="\n")
    assert len(stacks.numbered) >= 100
    assert len(wrong) <= 1 + len(stacks.numbered) / MOST_WRONG_OF
    compare_share(f"whole stacks of {what}", 1, 1 - stacks.cut / stacks.all, 0.01)
    compare_share(f"named stacks of {what}", 1, 1 - stacks.unnamed / stacks.all, 0.5)
    assert resident[-1] - resident[len(resident) // 2] < 32


def _uses(readline: Callable[[], bytes]) -> dict[int, tuple[int, int]]:
    """When each function was in use, until the program ends."""
    return {int(number): (int(first), int(last)) for number, first, last in map(bytes.split, iter(readline, b""))}
