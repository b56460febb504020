"""Versions of a service beside each other: one has a function that is 30 % slower, another one a function that is 5 %
slower. What do the comparison by request and the gate for CI say after minutes of real requests?"""

import contextlib
import io
import json
import math
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from icestream.cli import main
from tests.pipeline import priced_requests
from tests.pipeline.running import Pipeline
from tests.waiting import PATIENCE_S

# It runs alone: another program's load changes what a request costs.
pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.alone, pytest.mark.soak]

MINUTES = 3
"""The length of each comparison."""
RUN_MINUTES = MINUTES + 1
"""How long all versions run: pairs of these minutes compare a version with itself."""
FREQUENCY_HZ = 499
LEAST_GATES = 20
OLD, SLOW_PRICES, SLOW_CART = "1.0", "1.1", "1.2"
FACTORS: dict[str, dict[str, float]] = {OLD: {}, SLOW_PRICES: {"price_rules": 1.3}, SLOW_CART: {"hash_cart": 1.05}}
SLOWER = {SLOW_PRICES: ("GET /checkout", "price_rules"), SLOW_CART: ("GET /cart", "hash_cart")}
LIMITS = {SLOW_PRICES: ("5%", "25%"), SLOW_CART: ("1%", "5%")}
"""Limits of the gate below and above what the operation grew by."""
ROOT = Path(__file__).parents[2]

Clocked = list[dict[str, dict[str, int]]]
"""What a version says of its requests, by minute (priced_requests.py)."""


class Side(NamedTuple):
    """One side of a comparison: a version, in some minutes of the run."""

    version: str
    first: int
    minutes: int


@pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)
def test_a_slower_function_is_named_and_the_gate_tells_it_from_nothing(pipeline: Pipeline) -> None:
    pipeline.start("collect", "--frequency", str(FREQUENCY_HZ))
    pipeline.wait(lambda: (pipeline.data / "activity.sock").exists(), bool)
    begin_s = math.ceil((time.time() + 15) / 60) * 60
    clocked = run_versions(pipeline, begin_s)
    pipeline.settle_after(time.time_ns())
    pipeline.stop("collect")

    def query(now: Side, before: Side, command: str, *more: str) -> tuple[int, str]:
        """The exit code of `icestream query`, and what it prints."""
        said = io.StringIO()
        times = [*side("", now, begin_s), *side("baseline-", before, begin_s)]
        with contextlib.redirect_stdout(said):
            return main(["query", command, "--url", pipeline.url, *times, *more]), said.getvalue()

    def gate(now: Side, before: Side, limit: str) -> int:
        code, said = query(now, before, "diff", "--compare", "request", "--fail-over", limit)
        print(f"{now} against {before}, at most {limit}: {code}, {said.splitlines()[0]}")
        return code

    marked = []
    for version in SLOWER:
        now, before = Side(version, 0, MINUTES), Side(OLD, 0, MINUTES)
        code, said = query(now, before, "operations", "--json")
        assert code == 0
        answer = json.loads(said)
        print(f"{now}: {answer['sentence']}")
        marked += assert_found(version, answer, *(clocked[each][:MINUTES] for each in (version, OLD)))
        assert [gate(now, before, limit) for limit in LIMITS[version]] == [3, 0]
    print("unchanged, and marked as changed:", marked)
    assert len(marked) <= 1  # the intervals of a comparison leave out the truth in one of twenty

    codes = []
    for version, minutes in product(FACTORS, range(1, RUN_MINUTES)):
        sides = [Side(version, first, minutes) for first in range(RUN_MINUTES - minutes + 1)]
        codes += [gate(now, old, "5%") for now, old in product(sides, sides) if now.first - old.first >= minutes]
    assert len(codes) >= LEAST_GATES
    assert set(codes) == {0}


def run_versions(pipeline: Pipeline, begin_s: int) -> dict[str, Clocked]:
    """Runs all versions at the same time, and returns what they clocked."""
    command = [sys.executable, "-m", "tests.pipeline.priced_requests"]
    socket_and_times = [str(pipeline.data / "activity.sock"), str(begin_s), str(RUN_MINUTES)]
    processes = {}
    for version, factors in FACTORS.items():
        slower = [f"{name}={factor}" for name, factor in factors.items()]
        environ = os.environ | {"OTEL_RESOURCE_ATTRIBUTES": f"service.version={version}"}
        processes[version] = subprocess.Popen(
            [*command, *socket_and_times, *slower], env=environ, stdout=subprocess.PIPE, cwd=ROOT
        )
    patience_s = begin_s - time.time() + 60 * RUN_MINUTES + PATIENCE_S
    return {version: json.loads(process.communicate(timeout=patience_s)[0]) for version, process in processes.items()}


def side(prefix: str, which: Side, begin_s: int) -> list[str]:
    """Arguments that select a side."""
    start_s = begin_s + 60 * which.first
    selector = f'{{service="priced", service_version="{which.version}"}}'
    values = {"selector": selector, "start": str(start_s), "end": str(start_s + 60 * which.minutes)}
    return [word for name, value in values.items() for word in (f"--{prefix}{name}", value)]


def assert_found(version: str, answer: dict[str, Any], now: Clocked, before: Clocked) -> list[str]:
    """The sentence names what became slower, by how much; returns what else is marked as changed."""
    operation, function = SLOWER[version]
    of = {row["operation"]: row for row in answer["operations"]}
    assert answer["sentence"].startswith(f"{version} against {OLD}: {operation}: +")
    assert f"nearly all in {function}" in answer["sentence"]
    assert_growth(of[operation]["cpu"], priced_requests.growth(operation, FACTORS[version]), *(
        mean_ns(each, operation) for each in (now, before)
    ))  # fmt: skip
    functions = {each["name"]: each for row in of.values() if row["went_to"] for each in row["went_to"]["functions"]}
    assert_function(functions[function], FACTORS[version][function] - 1)
    others = [name for name, row in of.items() if row["status"] == "changed" and name != operation]
    return others + [name for name, each in functions.items() if each["is_sure"] and name != function]


def mean_ns(clocked: Clocked, operation: str) -> float:
    """The thread CPU of one request, as the service clocked it."""
    minutes = [minute[operation] for minute in clocked]
    requests = sum(each["requests"] for each in minutes)
    return sum(sum(each.values()) - each["requests"] for each in minutes) / requests


def assert_growth(cpu: dict[str, Any], by_rounds: float, now_ns: float, before_ns: float) -> None:
    """What the service clocked lies in the interval, and what its rounds say lies not far from it."""
    low, high, clocked = cpu["change_low"], cpu["change_high"], now_ns / before_ns - 1
    print(f"  {cpu['change']:+.4f} ({low:+.4f} to {high:+.4f}), clocked {clocked:+.4f}, by rounds {by_rounds:+.4f}")
    assert low < clocked < high
    assert abs(by_rounds - cpu["change"]) < high - low


def assert_function(found: dict[str, Any], share: float) -> None:
    """A function's change in one request is what its rounds say, as far as the samples tell."""
    by_rounds, width = share * found["baseline_cpu_ns"], found["change_high_ns"] - found["change_low_ns"]
    print(
        f"  {found['name']}: {found['change_ns'] / 1e6:+.2f} ms ± {width / 2e6:.2f}, by rounds {by_rounds / 1e6:+.2f}"
    )
    assert found["is_sure"]
    assert abs(found["change_ns"] - by_rounds) < width
