"""Programs that are gone before a batch is cut."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.running import Pipeline, between

# It runs alone: another collector beside it takes CPU from the one that has 50 ms to look at each program.
pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.alone]

PROGRAMS = 200
CPU_NS = 50_000_000 * PROGRAMS
SELECTOR = '{thread_name="short-lived"}'
LEAST_IDLE = 0.25
CUT_BUSY, CUT_IDLE = 4 / 25, 0.05
"""What is cut at most: the samples before the collector knew the program, which are one or two of 25. While no CPU is
idle, the collector waits for one as the programs do (docs/collector.md): a slice or two of the scheduler, each as long
as one or two samples."""


def test_programs_that_live_for_50_ms_are_fully_named(embedded_pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline, program = embedded_pipeline, tmp_path / "short-lived"
    source = Path(__file__).with_name("short.c")
    subprocess.run(["gcc", "-O2", "-Wl,--build-id", source, "-o", program], check=True)
    begin = time.time_ns()
    pipeline.start("collect", "--frequency", "499")
    pipeline.wait(lambda: pipeline.total(begin, begin + 60 * 10**9), lambda total: total > 0)
    before = cpu_ticks()
    loop = f"i=0; while [ $i -lt {PROGRAMS} ]; do {program}; i=$((i+1)); done"
    subprocess.run(["sh", "-c", loop], check=True)
    idle, used = (after - earlier for after, earlier in zip(cpu_ticks(), before, strict=True))
    end = time.time_ns() + 10 * 10**9

    def stacks() -> Counter[str]:
        text = pipeline.get("/api/v1/merge", selector=SELECTOR, format="collapsed", **between(begin, end))
        lines = [line.rpartition(" ") for line in text.splitlines()]
        return Counter({stack: int(value) for stack, _, value in lines})

    def part(found: Counter[str], of: Callable[[str], bool]) -> float:
        return sum(value for stack, value in found.items() if any(map(of, stack.split(";")))) / max(found.total(), 1)

    found = pipeline.wait(stacks, lambda found: found.total() > 0.9 * CPU_NS)
    allowed = CUT_IDLE if idle >= LEAST_IDLE * (idle + used) else CUT_BUSY
    assert part(found, is_cut) <= allowed, f"idle: {idle}, used: {used} ticks"
    found = pipeline.wait(stacks, lambda found: part(found, is_unnamed) <= allowed)
    assert sum(value for stack, value in found.items() if ";main;sort_numbers" in stack) > 0.8 * found.total()


def is_cut(frame: str) -> bool:
    return frame.startswith(("[unknown]", "[truncated"))


def is_unnamed(frame: str) -> bool:
    return "+0x" in frame or frame.startswith("[")


def cpu_ticks() -> tuple[int, int]:
    """The ticks of all CPUs since the start: idle, and used. Format: /proc/stat in proc(5)."""
    user, nice, system, idle, waiting, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return idle + waiting, user + nice + system + sum(others)
