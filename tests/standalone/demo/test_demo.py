"""`icestream demo --once --json`, on this kernel and from the recording."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.samples import Sample

from icestream import cli
from icestream.topics import RAW, SYMBOLS
from icestream.v1.raw_pb2 import RawBatch
from sinks.metrics import SECONDS
from standalone.demo.play import RECORDING
from standalone.demo.recording import read_recording
from standalone.demo.report import quantile
from tests.waiting import PATIENCE_S

DEMO = [sys.executable, "-m", "icestream.cli", "demo", "--once", "--json"]


@pytest.mark.ebpf
@pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="needs root")
def test_it_profiles_this_machine_and_prints_the_cpu_of_requests() -> None:
    result, elapsed_s = run_demo([*DEMO, "--seconds", "5"])
    assert result["profiler"] == "ebpf"
    check(result, elapsed_s)
    assert result["samples"] > 500
    # Beside other programs, when a thread has a CPU and when it is sampled may be in step. That sums agree with clocks
    # is tested where nothing else runs.
    assert result["sampled_cpu_s"] == pytest.approx(result["thread_cpu_s"], rel=0.5)


@pytest.mark.pipeline
def test_without_root_it_plays_the_recording() -> None:
    """In a user namespace of its own the process is nobody, and may load no eBPF program."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--user", "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    result, elapsed_s = run_demo(["unshare", "--user", *DEMO])
    assert result["profiler"] == "recording"
    check(result, elapsed_s)
    assert result["functions_named"] > result["functions"] / 3
    raw = [RawBatch.FromString(value) for topic, _, value in read_recording(RECORDING) if topic == RAW]
    assert result["samples"] == sum(len(batch.sample_stack) for batch in raw)
    assert result["sampled_cpu_s"] == pytest.approx(result["thread_cpu_s"], rel=0.1)


def test_a_file_that_is_no_recording_is_one_line_and_starts_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.recording"
    bad.write_bytes(b"no recording")
    assert cli.main(["demo", "--once", "--recording", str(bad)]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"icestream demo: {bad}")


def test_the_shipped_recording_is_small_and_holds_nothing_but_the_shop() -> None:
    assert RECORDING.stat().st_size < 1_000_000
    messages = list(read_recording(RECORDING))
    assert SYMBOLS not in {topic for topic, _, _ in messages}
    batches = [RawBatch.FromString(value) for topic, _, value in messages if topic == RAW]
    services = {label.value for b in batches for s in b.series for label in s.labels if label.name == "service"}
    assert services == {"shop"}
    assert {batch.host_id for batch in batches} == {"demo"}


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_exact_one(values: list[float], q: float) -> None:
    bounds = [1.0, 5.0, 10.0, 50.0, 200.0]
    buckets = [bucket(str(bound), sum(v <= bound for v in values)) for bound in bounds]
    exact = sorted(values)[max(0, -int(-q * len(values) // 1) - 1)]
    upper = next(bound for bound in bounds if exact <= bound)
    lower = max([0.0, *(bound for bound in bounds if bound < upper)])
    estimate = quantile([*buckets, bucket("+Inf", len(values))], q)
    assert estimate is not None
    assert lower <= estimate <= upper


def test_there_is_no_quantile_of_nothing() -> None:
    assert quantile([], 0.95) is None
    assert quantile([bucket("1.0", 0), bucket("+Inf", 0)], 0.95) is None


def bucket(bound: str, count: int) -> Sample:
    return Sample("seconds_bucket", {"le": bound}, count)


def run_demo(argv: list[str]) -> tuple[dict[str, Any], float]:
    """The result, and how many seconds it took."""
    begun = time.monotonic()
    demo = subprocess.run(argv, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert demo.returncode == 0, demo.stderr
    (line,) = demo.stdout.splitlines()
    result = json.loads(line)
    assert isinstance(result, dict)
    return result, time.monotonic() - begun


def check(result: dict[str, Any], elapsed_s: float) -> None:
    assert set(result) == {
        "profiler", "samples", "stacks", "functions", "functions_named", "freshness_p95_s",
        "sampled_cpu_s", "thread_cpu_s", "requests",
    }  # fmt: skip
    assert result["samples"] >= result["stacks"] > 0
    assert result["functions"] >= result["functions_named"] > 0  # on a busy machine most names come later
    # Batches are published and found while the demo runs. It computes with whole buckets of a histogram. There is no
    # closer bound: how long each part waits for a CPU is up to the other programs on the machine.
    assert 0 < result["freshness_p95_s"] <= next(bound for bound in SECONDS if bound >= elapsed_s)
    requests = result["requests"]
    assert len(requests) == 10
    thread_cpu = [request["thread_cpu_s"] for request in requests]
    assert thread_cpu == sorted(thread_cpu, reverse=True)
    assert all(len(request["trace_id"]) == 32 for request in requests)
    assert all(request["operation"].startswith("GET /") for request in requests)
    assert all(request["top_functions"] for request in requests if request["sampled_cpu_s"] > 0)
