"""Gauges are averaged over time: in a merge, a diff, a top, a timeline."""

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame

GOROUTINES = "goroutines:goroutine:count:goroutine:count"
ALLOCATED = "memory:alloc_space:bytes:space:bytes"
MAIN, WORK = frame("main"), frame("work")
INTERVAL_S = 15


def profiles(
    pod: str, counts: list[int], first: int = 0, offset_s: float = 0.0, profile_type: str = GOROUTINES
) -> list[Sample]:
    """One profile each interval, from the first one on."""
    labels = {"service": "shop", "pod": pod}
    times = [START_S + 1 + offset_s + INTERVAL_S * (first + number) for number in range(len(counts))]
    return [
        Sample((MAIN, WORK), count, labels=labels, time_s=time_s, profile_type=profile_type)
        for time_s, count in zip(times, counts, strict=True)
    ]


def total(api: Api, profile_type: str = GOROUTINES, **parameters: str) -> int:
    answer = api.json("/api/v1/merge", profile_type=profile_type, **parameters)
    assert answer["aggregation"] == ("average" if profile_type == GOROUTINES else "sum")
    return int(answer["total"])


def test_several_profiles_are_averaged_and_instances_are_added(api: Api, client: Client) -> None:
    fill(client, [*profiles("a", [6, 8, 10, 8]), *profiles("b", [100] * 4, offset_s=7), *profiles("c", [3])])
    assert total(api, selector='{pod="a"}') == 8
    assert total(api, selector='{pod=~"a|b"}') == 108
    assert total(api, selector='{pod="c"}') == 3
    one = {"start": str(START_S), "end": str(START_S + INTERVAL_S)}
    assert total(api, **one) == 109  # each has one profile
    assert total(api, group_by="pod", selector='{pod=~"a|b"}') == 108


def test_many_small_averages_add_up_to_the_whole(api: Api, client: Client) -> None:
    """Goroutines that are elsewhere in each profile: the average of each stack is a small part of one."""
    samples = [
        Sample(
            (MAIN, frame(f"at {number}", 1 + number)), 1, labels={"service": "shop", "pod": pod},
            time_s=START_S + 1 + INTERVAL_S * (number // 10), profile_type=GOROUTINES,
        )
        for pod in ("a", "b") for number in range(100)
    ]  # fmt: skip
    fill(client, samples)
    assert total(api) == 20
    assert total(api, group_by="pod") == 20
    assert api.json("/api/v1/top", profile_type=GOROUTINES)["total"] == 20


def test_what_is_no_gauge_is_summed_up(api: Api, client: Client) -> None:
    fill(client, profiles("a", [6, 8, 10, 8], profile_type=ALLOCATED))
    assert total(api, profile_type=ALLOCATED) == 32


def test_a_pod_that_another_one_replaces_counts_for_its_time(api: Api, client: Client) -> None:
    fill(client, [*profiles("old", [50] * 10), *profiles("new", [70] * 10, first=10), *profiles("all", [1000] * 20)])
    assert total(api, selector='{pod=~"old|new"}') == 60
    assert total(api) == 1060


@pytest.mark.parametrize("path", ["top", "sandwich"])
def test_tables_of_functions_have_averages(api: Api, client: Client, path: str) -> None:
    fill(client, [*profiles("a", [6, 8, 10, 8]), *profiles("b", [100] * 4)])
    more = {"function": "work"} if path == "sandwich" else {}
    assert api.json(f"/api/v1/{path}", profile_type=GOROUTINES, **more)["total"] == 108


def test_a_diff_compares_averages(api: Api, client: Client) -> None:
    fill(client, [*profiles("a", [10] * 4), *profiles("a", [15] * 20, first=100)])
    split = str(START_S + 50 * INTERVAL_S)
    before = {"baseline_start": str(START_S), "baseline_end": split}
    answer = api.json(
        "/api/v1/diff", profile_type=GOROUTINES, start=split, end=str(START_S + 3600), absolute="true", **before
    )
    assert (answer["total"], answer["baseline_total"]) == (15, 10)


def test_a_step_of_a_timeline_has_the_sum_of_averages(api: Api, client: Client) -> None:
    fill(client, [*profiles("a", [6, 8, 10, 8, 20]), *profiles("b", [100] * 5, offset_s=7)])
    answer = api.json("/api/v1/timeline", profile_type=GOROUTINES, step="1m", sum_by="service")
    (group,) = answer["groups"]
    assert group["values"][:3] == [108, 120, 0]
    assert (answer["aggregation"], answer["unit"]) == ("average", "count")


def test_operations_have_no_gauges(api: Api) -> None:
    of_operation = {"selector": '{service="shop", operation="GET /"}'}
    for path, parameters in (
        ("merge", {"group_by": "operation"}), ("timeline", {"sum_by": "operation"}),
        ("operations", {}), ("operations/slow", of_operation),
    ):  # fmt: skip
        answer = api.get(f"/api/v1/{path}", profile_type=GOROUTINES, **parameters)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")
