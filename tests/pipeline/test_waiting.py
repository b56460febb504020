"""Real requests that wait: what their time was, by the kernel, beside how long threads worked for them."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from api.terminal.draw_requests import time_lines
from tests.pipeline.running import Pipeline

# It runs alone: the collector follows all waits of this host. Not in `make test`: what the hypervisor takes from a
# thread that has a CPU is missing, and so is a wait whose end the kernel does not trace.
pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.alone, pytest.mark.soak]

REASONS = ("lock", "pipe", "network", "sleep", "disk", "run_queue")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)
def test_the_time_of_a_request_is_its_cpu_and_its_waits_by_reason(pipeline: Pipeline) -> None:
    pipeline.start("collect", "--off-cpu", "1", "--off-cpu-threshold-ms", "0.1", "--frequency", "19")
    pipeline.wait_published(time.time_ns())
    command = [sys.executable, "-m", "tests.pipeline.waiting_requests"]
    folders = [str(pipeline.data / "activity.sock"), str(pipeline.data)]
    said = subprocess.run([*command, *folders], check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout
    requests: dict[str, str] = json.loads(said)
    pipeline.settle_after(time.time_ns())

    def times() -> dict[str, Any]:
        return {name: pipeline.get(f"/api/v1/traces/{trace}/cpu")["time"] for name, trace in requests.items()}

    def named(found: dict[str, Any]) -> bool:
        """Whether the kernel's functions have their names."""
        return all(reason in found[reason]["waits"] for reason in REASONS)

    found = pipeline.wait(times, named)
    print("holes", pipeline.get("/api/v1/completeness", start="now-1h")["holes"])
    for name, of in found.items():
        print(name, *time_lines(of), sep="\n  ")
        explained = of["cpu_ns"] + sum(of["waits"].values())
        if name == "task":
            assert of["no_thread_ns"] > 0.97 * of["duration_ns"]
        else:
            assert 0.97 < explained / of["thread_time_ns"] < 1.03, name
    for reason in REASONS:
        of = found[reason]
        assert (of["threads"], of["followed_of"], of["unprofiled_hosts"]) == (1, 1, [])
        assert of["thread_time_ns"] == pytest.approx(of["duration_ns"], rel=0.03)
        waits = {name: value for name, value in of["waits"].items() if reason == "run_queue" or name != "run_queue"}
        assert max(waits, key=lambda name: waits[name]) == reason
    assert found["threads"]["thread_time_ns"] > 1.3 * found["threads"]["duration_ns"]  # asleep on two of them
    assert found["threads"]["waits"]["sleep"] == pytest.approx(2 * 0.6e9, rel=0.03)
