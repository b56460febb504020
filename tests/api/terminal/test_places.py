"""What is beside the names of functions in a terminal."""

from collections import Counter
from typing import Any

import pytest

from api.terminal.draw import draw_top
from api.terminal.draw_gate import draw_gate
from api.terminal.draw_operations import draw_slow
from api.terminal.gate import check_diff
from api.terminal.places import Function, places
from tests.api.terminal.test_gate import diff_of

MAINS = [
    ("main", "/usr/bin/shop", ""),
    ("main", "[python]", "/srv/shop/jobs.py"),
    ("main", "[python]", "/srv/shop/views.py"),
    ("main", "[python]", "/srv/cart/views.py"),
    ("main", "/opt/a/libwork.so", ""),
    ("main", "/opt/b/libwork.so", ""),
]


def test_functions_of_one_name_differ_in_what_is_beside_them() -> None:
    assert places(MAINS) == [
        "shop",
        "[python] jobs.py",
        "[python] /srv/shop/views.py",
        "[python] /srv/cart/views.py",
        "/opt/a/libwork.so",
        "/opt/b/libwork.so",
    ]


@pytest.mark.parametrize(
    ("functions", "short", "with_module"),
    [
        ([("run", "/usr/bin/shop", "run.c")], [""], ["shop"]),
        ([("run", "jit", "a.py"), ("run", "jit", "")], ["a.py", "unknown"], ["jit a.py", "jit unknown"]),
        ([("views.py", "", "views.py")], [""], [""]),
    ],
)
def test_nothing_is_beside_a_name_that_does_not_tell_something(
    functions: list[Function], short: list[str], with_module: list[str]
) -> None:
    assert places(functions) == short
    assert places(functions, with_module=True) == with_module


def test_rows_of_a_table_differ_where_both_modules_and_files_do() -> None:
    values = {"flat": 1, "cumulative": 1}
    top: dict[str, Any] = {
        "selector": "{}", "total": 6, "samples": 6, "unit": "nanoseconds", "rest": {"rows": 0, "flat": 0},
        "top": [{"name": name, "module": module, "file": file} | values for name, module, file in MAINS],
    }  # fmt: skip
    rows = draw_top(top).splitlines()[2:]
    assert Counter(rows).most_common(1)[0][1] == 1


def test_rows_of_what_slow_requests_do_differ_as_well() -> None:
    group = {"requests": 1, "mean_duration_ns": 1, "mean_cpu_ns": 1, "mean_waits_ns": None}
    sums = [f"{side}{measure}_per_request" for side in ("", "baseline_") for measure in ("flat", "cumulative")]
    answer: dict[str, Any] = {
        "slow": group, "fast": group, "unit": "nanoseconds", "thinned_until": None, "explained": None,
        "differences": [
            {"name": name, "module": module, "file": file, "changed": None} | dict.fromkeys(sums, 1.0)
            for name, module, file in MAINS
        ],
    }  # fmt: skip
    rows = draw_slow(answer).splitlines()[3:]
    assert len(set(rows)) == len(MAINS)


def test_a_gate_says_in_which_file_a_function_grew() -> None:
    diff = diff_of({"parse": (1_000, 2_500), "rest": (9_000, 7_500)})
    diff["strings"] += ["parse", "/srv/mail/parse.py"]
    for column, value in (("name", -2), ("file", -1)):
        diff["functions"][column][2] = len(diff["strings"]) + value  # of `rest`
    table = draw_gate(check_diff(diff, 5.0, "share"), diff).splitlines()
    assert [line.split("parse")[1].strip() for line in table if " flat " in line] == ["unknown"]
