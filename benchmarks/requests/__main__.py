"""Whether the CPU of requests is what they used.

    python -m benchmarks.requests [--requests 10000] [--frequencies 99 999]

A program (benchmarks/requests/known_cost.py) runs requests of known thread CPU in six ways: on threads, on a pool, as
tasks of asyncio and of uvloop, half on an event loop and half on other threads, and in forked processes. A collector
(as root) samples it, with Apache Kafka (`make kafka`), a stream worker and the store behind it; then the query API is
asked what each request used. Takes 20 ms of CPU a request and frequency, and some minutes more.

Prints one JSON object. For each frequency, and for each way and operation: `sampled_over_clock`, all sampled CPU over
all CPU by the threads' clocks; for each frequency also `clock_over_known`, the CPU by those clocks over what the
requests measured themselves, `missing_requests`, `covered`, the share of requests whose CPU by the clock is within the
95 % confidence interval of their sampled CPU, `interval_width`, the mean width of these intervals as a multiple of
that CPU, `sample_rows_outside`, the rows of samples on a trace outside its thread's intervals, and `not_clocked`, which
share of busy CPU time the clocks of threads leave out, because it was taken by interrupts or the hypervisor.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.requests.known_cost import MODES, OPERATIONS, SERVICE
from icestream.commands.topics import create
from standalone.supervisor.local_kafka import LocalKafka
from tests.not_clocked import NotClocked
from tests.pipeline.covered import outside_intervals
from tests.pipeline.running import Pipeline, between

_PAGE = 1000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="of each frequency (default: 10,000)")
    parser.add_argument("--frequencies", type=int, nargs="+", default=[99, 999], help="Hz (default: 99 999)")
    args = parser.parse_args(argv)
    print(json.dumps({f"{hz} Hz": measure(args.requests, hz) for hz in args.frequencies}))
    return 0


def measure(requests: int, frequency_hz: int) -> dict[str, object]:
    """The figures of one frequency."""
    with tempfile.TemporaryDirectory(prefix="icestream-requests-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        kafka = LocalKafka(folder / "kafka")
        kafka.start()
        pipeline = Pipeline(kafka.settings(), folder / "data")
        try:
            create(kafka.settings(), partitions=2, replication=1)
            pipeline.start("store")
            pipeline.wait(lambda: pipeline.get("/readyz"), lambda answer: answer["status"] == "ready")
            pipeline.start("streams")
            pipeline.start("collect", "--frequency", str(frequency_hz))
            pipeline.wait(lambda: (pipeline.data / "activity.sock").exists(), bool)
            begin, not_clocked = time.time_ns(), NotClocked()
            run = [
                request | {"mode": mode}
                for number, mode in enumerate(MODES)
                for request in run_program(pipeline, mode, len(range(number, requests, len(MODES))))
            ]
            share = not_clocked.share()
            pipeline.wait_published(time.time_ns())
            pipeline.stop("collect")
            pipeline.settle()
            pipeline.settle()  # corrections
            found = read_requests(pipeline, begin)
            samples, outside = outside_intervals(kafka.settings(), {bytes.fromhex(one["trace_id"]) for one in run})
        finally:
            pipeline.close()
            kafka.close()
    return figures(run, found) | {
        "sample_rows": samples,
        "sample_rows_outside": outside,
        "not_clocked": round(share, 4),
    }


def run_program(pipeline: Pipeline, mode: str, requests: int) -> list[dict[str, Any]]:
    """Returns the requests as the program knows them."""
    socket = str(pipeline.data / "activity.sock")
    arguments = [mode, "--requests", str(requests), "--socket", socket]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.requests.known_cost", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        pipeline.wait_published(time.time_ns())  # so that the collector has looked at the process
        print(f"{mode}: {requests} requests", file=sys.stderr)
        answer, _ = process.communicate("go\n")
    if process.returncode:
        raise RuntimeError(f"{mode} ended with {process.returncode}")
    return [json.loads(line) for line in answer.splitlines()]


def read_requests(pipeline: Pipeline, begin: int) -> dict[str, dict[str, Any]]:
    """Returns the requests as the query API knows them, by trace ID."""
    found: dict[str, dict[str, Any]] = {}
    asked = {"limit": _PAGE, "selector": f'{{service="{SERVICE}"}}'} | between(begin, time.time_ns() + 60 * 10**9)
    more: dict[str, str] = {}
    while True:
        answer = pipeline.get("/api/v1/traces", **asked, **more)
        found |= {row["trace_id"]: row for row in answer["traces"]}
        if not answer["next"]:
            return found
        more = {"cursor": answer["next"]}


def figures(run: Sequence[dict[str, Any]], found: dict[str, dict[str, Any]]) -> dict[str, object]:
    """What is printed of requests: as the program knows them, and as the query API does."""
    rows = [(one, found[one["trace_id"]]) for one in run if one["trace_id"] in found]
    clock = sum(row["thread_cpu_ns"] for _, row in rows)

    def sampled_over_clock(of: Callable[[dict[str, Any]], bool]) -> float:
        mine = [row for one, row in rows if of(one)]
        return round(_sum(mine, "sampled_cpu_ns") / max(_sum(mine, "thread_cpu_ns"), 1), 4)

    intervals = [
        (row["sampled_cpu_low_ns"], row["thread_cpu_ns"], row["sampled_cpu_high_ns"])
        for _, row in rows
        if row["sampled_cpu_low_ns"] is not None and row["thread_cpu_ns"]
    ]
    covered = sum(low <= clocked <= high for low, clocked, high in intervals)
    widths = sum((high - low) / clocked for low, clocked, high in intervals)
    return {
        "requests": len(run),
        "missing_requests": len(run) - len(rows),
        "wrong_operations": sum(one["operation"] != row["operation"] for one, row in rows),
        "without_interval": len(rows) - len(intervals),
        "clock_over_known": round(clock / max(_sum((one for one, _ in rows), "thread_cpu_ns"), 1), 4),
        "sampled_over_clock": sampled_over_clock(lambda _: True),
        "by_mode": {mode: sampled_over_clock(lambda one, mode=mode: one["mode"] == mode) for mode in MODES},
        "by_operation": {
            name: sampled_over_clock(lambda one, name=name: one["operation"] == name) for name in OPERATIONS
        },
        "covered": round(covered / max(len(intervals), 1), 4),
        "interval_width": round(widths / max(len(intervals), 1), 2),
    }


def _sum(rows: Iterable[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
