"""Waits of a real program, from the switches of its threads to merged profiles."""

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from icestream.topics import DEFAULT_PROFILE_TYPE, OFF_CPU_PROFILE_TYPE
from tests.pipeline.running import Pipeline, between

pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf]

EXECUTABLE = f"waiting-{os.getpid()}"  # a collector also sees what the tests of another process run
SELECTOR = f'{{executable="{EXECUTABLE}"}}'
SOURCE = Path(__file__).parents[1] / "collector" / "programs" / "waiting.c"


@pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)
def test_waits_are_a_profile_type_of_their_own_in_nanoseconds(pipeline: Pipeline, tmp_path: Path) -> None:
    program = tmp_path / EXECUTABLE
    subprocess.run(["gcc", "-O2", "-g", "-Wl,--build-id", "-pthread", "-o", program, SOURCE], check=True)
    begin = time.time_ns()
    pipeline.start("collect", "--off-cpu", "1", "--frequency", "199")

    def merged(profile_type: str = OFF_CPU_PROFILE_TYPE) -> Counter[str]:
        """Cumulative nanoseconds of each function."""
        text = pipeline.get(
            "/api/v1/merge", selector=SELECTOR, format="collapsed", profile_type=profile_type,
            **between(begin, time.time_ns() + 60 * 10**9),
        )  # fmt: skip
        functions: Counter[str] = Counter()
        for line in text.splitlines():
            stack, _, value = line.rpartition(" ")
            functions.update(dict.fromkeys(stack.split(";"), int(value)))
        return functions

    with subprocess.Popen([program, "long"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        measured: Counter[str] = Counter()
        undisturbed: Counter[str] = Counter()  # of them, in calls in which the thread never lost its CPU

        def wait_more(calls: int = 5) -> Counter[str]:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
            for line in iter(process.stdout.readline, "done\n"):
                function, all_ns, undisturbed_ns = line.split()
                measured[function] += int(all_ns)
                undisturbed[function] += int(undisturbed_ns)
            return merged()

        pipeline.wait(wait_more, lambda found: found["nanosleep_20ms"] > 0)
        pipeline.settle_after(time.time_ns())
        before, before_undisturbed, told = Counter(measured), Counter(undisturbed), merged()
        for _ in range(2):
            wait_more(25)  # so that a call in which the machine stood still is no tenth of all
        pipeline.wait_published(time.time_ns())  # what a collector that ends cannot publish in time stays in its spool
        assert pipeline.stop("collect") == 0
        process.kill()
    pipeline.settle()  # a wait may be in a later batch than the one that is waited for below

    def is_all(found: Counter[str]) -> bool:
        return found["nanosleep_20ms"] - told["nanosleep_20ms"] > 0.9 * (
            undisturbed["nanosleep_20ms"] - before_undisturbed["nanosleep_20ms"]
        )

    found = pipeline.wait(merged, is_all)
    for function in ("nanosleep_20ms", "read_from_pipe"):
        waited = found[function] - told[function]
        assert waited >= 0.9 * (undisturbed[function] - before_undisturbed[function])
        assert waited <= 1.1 * (measured[function] - before[function])
    listed = pipeline.get("/api/v1/profile-types")["profile_types"]
    assert {OFF_CPU_PROFILE_TYPE, DEFAULT_PROFILE_TYPE} <= {each["id"] for each in listed}
    answer = pipeline.get(
        "/api/v1/merge", selector=SELECTOR, format="tree", profile_type=OFF_CPU_PROFILE_TYPE,
        **between(begin, time.time_ns() + 60 * 10**9),
    )  # fmt: skip
    assert answer["unit"] == "nanoseconds"
    assert answer["total"] >= found["nanosleep_20ms"]
    assert merged(DEFAULT_PROFILE_TYPE)["nanosleep_20ms"] < found["nanosleep_20ms"] / 10
