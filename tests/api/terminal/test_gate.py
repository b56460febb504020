"""The gate fails for what the samples support, and only for that."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.statistics.counts import mean_count, ratio, share
from api.statistics.estimates import deviations, difference
from api.terminal.draw_gate import draw_gate
from api.terminal.gate import Compare, Gate, check_diff
from icestream.cli import CommandError

PERIOD_NS = 10_000_000
Counts = dict[str, tuple[int, int]]
"""Function -> its samples in the baseline and now."""


def diff_of(flat: Counts, seconds: tuple[int, int] = (600, 600), **more: Any) -> dict[str, Any]:
    """The API's answer to a diff, as far as the gate reads it; every function is called by `main`."""
    before, now = (sum(counts[side] for counts in flat.values()) for side in (0, 1))
    rows = {"main": (0, 0), **flat}
    cumulative = [(before, now), *flat.values()]
    functions = {
        "name": list(range(1, len(rows) + 1)), "module": [0] * len(rows), "file": [0] * len(rows),
        "kind": [int(not name.startswith("[")) for name in rows],
        "flat": [counts[1] * PERIOD_NS for counts in rows.values()],
        "baseline_flat": [counts[0] * PERIOD_NS for counts in rows.values()],
        "cumulative": [counts[1] * PERIOD_NS for counts in cumulative],
        "baseline_cumulative": [counts[0] * PERIOD_NS for counts in cumulative],
    }  # fmt: skip
    answer = {
        "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "strings": ["", *rows],
        "kinds": ["icestream", "native"],
    }
    answer |= {"functions": functions}
    for prefix, count, length in (("baseline_", before, seconds[0]), ("", now, seconds[1])):
        answer |= {f"{prefix}total": count * PERIOD_NS, f"{prefix}samples": count, f"{prefix}selector": "{}"}
        answer |= {f"{prefix}start": "1970-01-01T00:00:00Z"}
        answer |= {f"{prefix}end": f"1970-01-01T{length // 3600:02}:{length // 60 % 60:02}:{length % 60:02}Z"}
    return answer | more


def check(flat: Counts, compare: Compare = "share", seconds: tuple[int, int] = (600, 600)) -> Gate:
    return check_diff(diff_of(flat, seconds), 5.0, compare)


def failing(gate: Gate) -> list[str]:
    return [change.name for change in gate.changes if change.over]


def test_a_function_that_grew_by_more_than_the_limit_fails() -> None:
    gate = check({"parse": (1_000, 2_500), "rest": (9_000, 7_500)})
    assert gate.failed
    assert failing(gate) == ["parse"]
    change = gate.changes[0]
    assert (change.before_percent, change.now_percent) == (pytest.approx(10), pytest.approx(25))
    assert 5 < change.change_percent.low < 15 < change.change_percent.high


def test_stacks_that_have_not_arrived_are_no_function_that_grew() -> None:
    gate = check({"parse": (5_000, 4_000), "[unresolved stack]": (0, 4_000), "rest": (5_000, 2_000)})
    assert not gate.failed
    assert [change.name for change in gate.changes] == []


def test_the_same_shares_of_few_samples_do_not_fail_and_are_named() -> None:
    gate = check({"parse": (2, 5), "rest": (18, 15)})
    assert not gate.failed
    assert [(change.name, change.over) for change in gate.changes] == [("parse", False)]
    text = draw_gate(gate, diff_of({"parse": (2, 5), "rest": (18, 15)}))
    assert "passed" in text
    assert "does not support" in text


def test_less_work_and_growth_below_the_limit_pass() -> None:
    assert not check({"parse": (50_000, 10_000), "rest": (50_000, 50_000)}, "time").failed
    assert not check({"parse": (10_000, 14_000), "rest": (90_000, 86_000)}).failed


def test_by_share_a_larger_fleet_is_no_failure_and_by_time_the_whole_fails() -> None:
    twice: Counts = {"parse": (10_000, 20_000), "rest": (90_000, 180_000)}
    assert not check(twice).failed
    gate = check(twice, "time")
    assert gate.whole_over
    assert gate.whole_percent.value == pytest.approx(100)
    assert set(failing(gate)) == {"main", "parse", "rest"}
    assert not check(twice, "time", seconds=(600, 1200)).failed


def test_a_side_without_samples_and_waits_are_errors() -> None:
    with pytest.raises(CommandError, match="no samples of the baseline"):
        check({"parse": (0, 5)})
    with pytest.raises(CommandError, match="no samples of the profile"):
        check({"parse": (5, 0)})
    with pytest.raises(CommandError, match="off_cpu"):
        check_diff(diff_of({"f": (9, 9)}, profile_type="off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"), 5, "share")


@pytest.mark.slow
@pytest.mark.parametrize("compare", ["share", "time"])
@pytest.mark.parametrize("samples", [30, 300, 3_000])
def test_no_more_than_one_comparison_of_twenty_fails_by_chance(compare: Compare, samples: int) -> None:
    """True shares grow by exactly the limit, in four functions: as near to a failure as what must pass can be."""
    random = np.random.default_rng(samples)
    before = np.array([0.05, 0.1, 0.2, 0.25, 0.4])
    now = before + np.array([0.05, 0.05, 0.05, 0.05, -0.2]) if compare == "share" else before + 0.01
    failures = 0
    for _ in range(400):
        counts = zip(random.poisson(before * samples), random.poisson(now * samples), strict=True)
        flat = {f"f{i}": (int(b), int(n)) for i, (b, n) in enumerate(counts)}
        if all(sum(column) for column in zip(*flat.values(), strict=True)):
            failures += check(flat, compare).failed
    assert failures <= 400 * 0.05 + 2 * math.sqrt(400 * 0.05)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 10_000), st.integers(1, 10_000))
def test_intervals_hold_their_estimate_and_are_those_of_the_other_direction_with_the_sign_changed(
    a: int, b: int, n: int, m: int
) -> None:
    z = deviations(0.95, 7)
    now, before = share(min(a, n), n, z), share(min(b, m), m, z)
    for one in (now, before, mean_count(a, z), difference(now, before), ratio(n, m, z)):
        assert one.low <= one.value <= one.high
    assert now.low >= 0
    assert now.high <= 1
    there, back = difference(now, before), difference(before, now)
    assert (there.low, there.high) == (pytest.approx(-back.high), pytest.approx(-back.low))
    assert ratio(n, m, z).low == pytest.approx(1 / ratio(m, n, z).high)


def test_intervals_are_those_of_the_literature() -> None:
    """Newcombe 1998, table II, row (a), method 10: 56/70 - 48/80."""
    z = deviations(0.95, 1)
    found = difference(share(56, 70, z), share(48, 80, z))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)
