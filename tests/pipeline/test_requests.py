"""Requests of known CPU, threads and interleaved asyncio tasks, at 1999 Hz: what each is said to have used."""

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from standalone.demo.workload import SERVICE
from tests.not_clocked import NotClocked
from tests.pipeline.covered import outside_intervals, with_operation
from tests.pipeline.running import Pipeline, between

# They run alone: beside other programs, when a thread has a CPU and when it is sampled may be in step.
pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.alone]

REQUESTS = 100
FREQUENCY_HZ = 1999


@pytest.mark.parametrize(
    "broker", ["in_process_broker", pytest.param("apache_kafka", marks=pytest.mark.soak)], indirect=True
)
def test_cpu_of_requests_agrees_with_the_threads_clocks(pipeline: Pipeline) -> None:
    begin = time.time_ns()
    pipeline.start("collect", "--frequency", str(FREQUENCY_HZ))
    pipeline.wait(lambda: (pipeline.data / "activity.sock").exists(), bool)
    requests, not_clocked = workload(pipeline)
    pipeline.wait_published(time.time_ns())  # what a collector that ends cannot publish in time is left in its spool
    pipeline.stop("collect")  # before its samples are stored: at this frequency it takes much of the CPUs
    end = time.time_ns() + 60 * 10**9
    assert len(requests) == REQUESTS

    def sampled() -> dict[str, int]:
        rows = pages(pipeline, begin, end)
        return {row["trace_id"]: row["sampled_cpu_ns"] for row in rows}

    known = {request["trace_id"] for request in requests}
    pipeline.settle()  # before it asks for all pages again and again
    pipeline.wait(lambda: len(known & set(sampled())), lambda n: n == REQUESTS)
    pipeline.settle()  # corrections
    rows = {row["trace_id"]: row for row in pages(pipeline, begin, end) if row["trace_id"] in known}
    assert {rows[r["trace_id"]]["operation"] for r in requests} == {r["operation"] for r in requests}
    assert_thread_cpu(rows, requests)
    assert_sampled_cpu(rows, requests, not_clocked)
    for by in ("thread", "asyncio"):
        assert_sampled_cpu(rows, [r for r in requests if r["by"] == by], not_clocked)
    assert_operations(pipeline, between(begin, end), list(rows.values()))
    samples, outside = outside_intervals(pipeline.settings, {bytes.fromhex(trace) for trace in known})
    assert samples > 2000
    assert outside == 0
    assert with_operation(pipeline.settings, {bytes.fromhex(trace) for trace in known}) > 0.95 * samples


def test_two_versions_beside_each_other_have_each_their_own_operations(pipeline: Pipeline) -> None:
    begin = time.time_ns()
    pipeline.start("collect", "--frequency", "199")
    pipeline.wait(lambda: (pipeline.data / "activity.sock").exists(), bool)
    of_version = {
        version: workload(pipeline, 20, OTEL_RESOURCE_ATTRIBUTES=f"service.version={version}")[0]
        for version in ("1.0", "1.1")
    }
    pipeline.wait_published(time.time_ns())
    pipeline.stop("collect")
    pipeline.settle()
    when = between(begin, time.time_ns() + 60 * 10**9)
    service = f'service="{SERVICE}"'

    def operations(selector: str, **more: str) -> list[dict]:
        return pipeline.get("/api/v1/operations", selector=selector, **when, **more)["operations"]

    pipeline.wait(lambda: sum(row["requests"] for row in operations(f"{{{service}}}")), lambda n: n == 40)
    pipeline.settle()
    split = operations(f"{{{service}}}", by="service_version")
    for version, requests in of_version.items():
        selector = f'{{{service}, service_version="{version}"}}'
        rows = operations(selector)
        assert Counter({row["operation"]: row["requests"] for row in rows}) == Counter(r["operation"] for r in requests)
        labels = {"service_version": version}
        of_all = {"labels": labels, "share": 0, "requests_per_second": 0}  # shares of both versions; until now
        assert [row | of_all for row in split if row["labels"] == labels] == [row | of_all for row in rows]
        listed = pipeline.get("/api/v1/traces", selector=selector, limit=100, **when)["traces"]
        assert {row["trace_id"] for row in listed} == {request["trace_id"] for request in requests}
        operation = Counter(r["operation"] for r in requests).most_common(1)[0][0]
        named = f'{selector[:-1]}, operation="{operation}"}}'
        compared = pipeline.get("/api/v1/operations/slow", selector=named, slow="99", fast="1", **when)
        assert (compared["slow"]["requests"], compared["fast"]["requests"]) == (1, 1)
        total = pipeline.get("/api/v1/merge", selector=selector, **when)["total"]
        assert pipeline.get("/api/v1/operations", selector=selector, **when)["total"] == total


def assert_thread_cpu(rows: dict[str, dict], requests: list[dict]) -> None:
    """Each request has the CPU that it clocked; with what surrounds it in its spans (for a task, the event loop's
    work), the requests of a thread have no more than the thread."""
    by_thread = defaultdict(list)
    for request in requests:
        by_thread[request["tid"]].append(request)
        assert rows[request["trace_id"]]["thread_cpu_ns"] >= request["thread_cpu_ns"]
    for mine in by_thread.values():
        assert sum(rows[r["trace_id"]]["thread_cpu_ns"] for r in mine) <= max(r["thread_clock_ns"] for r in mine)


def assert_sampled_cpu(rows: dict[str, dict], requests: list[dict], not_clocked: float) -> None:
    """Samples of requests agree with the thread CPU of the same intervals to 4 standard deviations.

    A thread has its CPU in slices, most of them shorter than a few periods. A slice of n + f periods has n samples or
    n + 1, the latter with the chance f, because where sampling finds it is random: a variance of f (1 - f). That is
    less than f, so the sum of all slices has a variance below the expected number of samples.

    Samples also count what the thread's clock leaves out, a share of it: `not_clocked`.
    """
    mine = [rows[request["trace_id"]] for request in requests]
    clock_ns, sampled_ns = (sum(row[name] for row in mine) for name in ("thread_cpu_ns", "sampled_cpu_ns"))
    chance = 4 / (clock_ns * FREQUENCY_HZ / 1e9) ** 0.5
    assert 1 - chance < sampled_ns / clock_ns < 1 + chance + not_clocked


def assert_operations(pipeline: Pipeline, time_range: dict, requests: list[dict]) -> None:
    """The samples of each operation are those of its requests, and what selects it finds the same.

    Only in the workload's service: the collector also sees what other tests run, and labels of theirs name operations.
    """
    expected: dict[str, int] = defaultdict(int)
    for request in requests:
        expected[request["operation"]] += request["sampled_cpu_ns"]
    service = f'service="{SERVICE}"'
    groups = pipeline.get("/api/v1/timeline", selector=f"{{{service}}}", sum_by="operation", step="1h", **time_range)[
        "groups"
    ]
    found = {group["labels"]["operation"]: sum(group["values"]) for group in groups}
    found.pop("", None)
    assert found == expected
    for operation, value in expected.items():
        selector = f'{{{service}, operation="{operation}"}}'
        assert pipeline.get("/api/v1/merge", selector=selector, **time_range)["total"] == value


def workload(pipeline: Pipeline, count: int = REQUESTS, **environ: str) -> tuple[list[dict], float]:
    """Requests of 20 ms, as the workload clocked them itself, and the share of CPU time that its clocks left out."""
    command = [
        sys.executable,
        "-m",
        "standalone.demo.workload",
        "--requests",
        str(count),
        "--cpu-ms",
        "20",
        "--json",
    ]
    with subprocess.Popen(
        [*command, "--wait", "--socket", str(pipeline.data / "activity.sock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        env=os.environ | environ,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        # Until the collector has looked at the process: it has to know where this one shows its contexts.
        pipeline.wait_published(time.time_ns())
        time.sleep(0.5)
        not_clocked = NotClocked()
        process.stdin.write("go\n")
        process.stdin.flush()
        requests = [json.loads(line) for line in process.stdout]
        share = not_clocked.share()
    assert process.returncode == 0
    return requests, share


def pages(pipeline: Pipeline, begin: int, end: int) -> list[dict]:
    """All traces, by following `next`."""
    rows, following = [], {}
    while True:
        answer = pipeline.get("/api/v1/traces", limit=50, **between(begin, end), **following)
        rows += answer["traces"]
        if not answer["next"]:
            return rows
        following = {"cursor": answer["next"]}
