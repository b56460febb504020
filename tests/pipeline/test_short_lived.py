"""Programs that are gone before a batch is cut."""

import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.running import Pipeline, between

# It runs alone: another collector beside it takes CPU from the one that has 50 ms to look at each program.
pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.alone]

PROGRAMS = 200
CPU_NS = 50_000_000 * PROGRAMS
SELECTOR = '{thread_name="short-lived"}'


def test_programs_that_live_for_50_ms_are_fully_named(embedded_pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline, program = embedded_pipeline, tmp_path / "short-lived"
    source = Path(__file__).with_name("short.c")
    subprocess.run(["gcc", "-O2", "-Wl,--build-id", source, "-o", program], check=True)
    begin = time.time_ns()
    pipeline.start("collect", "--frequency", "499")
    pipeline.wait(lambda: pipeline.total(begin, begin + 60 * 10**9), lambda total: total > 0)
    loop = f"i=0; while [ $i -lt {PROGRAMS} ]; do {program}; i=$((i+1)); done"
    subprocess.run(["sh", "-c", loop], check=True)
    end = time.time_ns() + 10 * 10**9

    def stacks() -> Counter[str]:
        text = pipeline.get("/api/v1/merge", selector=SELECTOR, format="collapsed", **between(begin, end))
        lines = [line.rpartition(" ") for line in text.splitlines()]
        return Counter({stack: int(value) for stack, _, value in lines})

    def named(found: Counter[str]) -> float:
        whole = sum(value for stack, value in found.items() if not any(map(is_unnamed, stack.split(";"))))
        return whole / max(found.total(), 1)

    found = pipeline.wait(stacks, lambda found: found.total() > 0.9 * CPU_NS and named(found) >= 0.95)
    assert sum(value for stack, value in found.items() if ";main;sort_numbers" in stack) > 0.8 * found.total()


def is_unnamed(frame: str) -> bool:
    return "+0x" in frame or frame.startswith(("[unknown]", "[truncated"))
