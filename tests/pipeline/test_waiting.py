"""Real requests that wait: what their time was, by the kernel, beside how long they took."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from api.terminal.draw_requests import time_lines
from tests.pipeline.running import Pipeline

pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf]

REASONS = ("lock", "pipe", "network", "sleep", "disk", "run_queue")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)
def test_the_time_of_a_request_is_its_cpu_and_its_waits_by_reason(pipeline: Pipeline) -> None:
    pipeline.start("collect", "--off-cpu", "1", "--off-cpu-threshold-ms", "0.1")
    pipeline.wait_published(time.time_ns())
    command = [sys.executable, "-m", "tests.pipeline.waiting_requests"]
    said = subprocess.run(
        [*command, str(pipeline.data / "activity.sock"), str(pipeline.data)],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ).stdout
    pipeline.settle_after(time.time_ns())
    requests: dict[str, str] = json.loads(said)

    def times() -> dict[str, Any]:
        return {name: pipeline.get(f"/api/v1/traces/{trace}/cpu")["time"] for name, trace in requests.items()}

    def named(found: dict[str, Any]) -> bool:
        """Whether the kernel's functions have names."""
        print(*((name, *time_lines(of)) for name, of in found.items()), sep="\n")
        return all(next(iter(found[name]["waits"]), "") == name for name in REASONS)

    print(pipeline.get("/api/v1/completeness", start="now-1h"))
    found = pipeline.wait(times, named, 20)
    for name, time_of in found.items():
        explained = time_of["cpu_ns"] + sum(time_of["waits"].values())
        assert 0.97 < explained / time_of["thread_time_ns"] < 1.03, name
    for name in REASONS:
        assert found[name]["threads"] == 1
        assert explained / found[name]["duration_ns"] < 1.03
