"""What a request costs, against a baseline: changes that were made are found, and no others."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import SEEN, START_S
from tests.api.queries.two_versions import CART, CHECKOUT, COSTS, SLOWER, Version, insert_versions
from tests.data.tables import insert_series

PATH = "/api/v1/operations/compare"
BEFORE = {"baseline_start": str(START_S), "baseline_end": str(START_S + 180)}
NOW = {"start": str(START_S + 240), "end": str(START_S + 420)}
SIDES = {"selector": '{service="new"}', "baseline_selector": '{service="old"}'}


@pytest.fixture
def two(client: Client) -> None:
    """The second version is slower in CHECKOUT, not in CART; another operation is new, one is gone."""
    cart = {"hash_cart": 5.0}
    insert_versions(
        client,
        Version(COSTS, 0), Version(cart, 0, operation=CART), Version(COSTS, 0, 50, operation="old"),
        Version(SLOWER, 240), Version(cart, 240, operation=CART), Version(COSTS, 240, 50, operation="new"),
    )  # fmt: skip


def insert_sides(client: Client, costs: Mapping[str, float], **of_both: Any) -> None:
    """Services `old` and `new` side by side."""
    insert_versions(client, Version(COSTS, 0, service="old", **of_both), Version(costs, 0, service="new", **of_both))


@pytest.mark.usefixtures("two")
def test_a_slower_function_is_found_with_what_it_costs_a_request(api: Api) -> None:
    answer = api.json(PATH, **NOW, **BEFORE)
    assert re.fullmatch(
        r"GET /checkout: \+(19|20) % CPU a request \(26\.\d to 31\.\d ms, \+1[78] to \+2[12] %\),"
        r" nearly all in price_rules\.",
        answer["sentence"],
    )
    rows = {row["operation"]: row for row in answer["operations"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        CHECKOUT: "changed", CART: "same", "old": "gone", "new": "new"
    }  # fmt: skip
    assert next(iter(rows)) == CHECKOUT
    checkout = rows[CHECKOUT]
    assert checkout["cpu_by"] == "clock"
    true = sum(SLOWER.values()) / sum(COSTS.values()) - 1
    assert checkout["cpu"]["change_low"] < true < checkout["cpu"]["change_high"]
    assert checkout["cpu"]["baseline_mean_ns"] == pytest.approx(26.2e6, rel=0.02)
    assert (checkout["requests"], checkout["baseline_requests"]) == (2000, 2000)
    assert checkout["requests_per_second"] == pytest.approx(2000 / 180, abs=0.01)
    functions = {row["name"]: row for row in checkout["went_to"]["functions"]}
    assert next(iter(functions)) == "price_rules"
    assert [name for name, row in functions.items() if row["is_sure"]] == ["price_rules"]
    whole = checkout["cpu"]["mean_ns"] - checkout["cpu"]["baseline_mean_ns"]
    parts = sum(row["change_ns"] for row in functions.values()) + checkout["went_to"]["others_change_ns"]
    assert parts == pytest.approx(whole, abs=10)
    assert answer["comparisons"] == 2
    there_and_back = api.json(
        PATH, start=START_S, end=START_S + 180, baseline_start=START_S + 240, baseline_end=START_S + 420
    )
    faster = r"GET /checkout: \N{MINUS SIGN}1[67] % CPU .*, nearly all in price_rules\."
    assert re.match(faster, there_and_back["sentence"])


@pytest.mark.usefixtures("two")
def test_one_operation_has_its_own_sentence_and_a_limit_keeps_the_first(api: Api) -> None:
    cart = api.json(PATH, **NOW, **BEFORE, selector=f'{{service="shop", operation="{CART}"}}')
    same = r"GET /cart: the same CPU a request \(\S+ to \S+ ms, \N{MINUS SIGN}\S+ to \+\S+ %\)\."
    assert re.match(same, cart["sentence"])
    assert cart["comparisons"] == 1
    first = api.json(PATH, **NOW, **BEFORE, limit=1)
    assert ([row["operation"] for row in first["operations"]], first["count"]) == ([CHECKOUT], 4)
    assert first["sentence"].startswith("GET /checkout: +")


def test_two_services_are_paired_by_operation(api: Api, client: Client) -> None:
    insert_sides(client, SLOWER)
    (row,) = api.json(PATH, **SIDES)["operations"]
    assert (row["service"], row["baseline_service"], row["status"]) == ("new", "old", "changed")
    assert [each["name"] for each in row["went_to"]["functions"] if each["is_sure"]] == ["price_rules"]
    both = api.json(PATH, selector="{}", baseline_start=START_S - 3600, baseline_end=START_S - 60)
    assert {(row["service"], row["status"]) for row in both["operations"]} == {("new", "new"), ("old", "new")}


def test_versions_that_run_side_by_side_are_compared_by_their_label(api: Api, client: Client) -> None:
    insert_versions(client, Version(COSTS, 0), Version(SLOWER, 0, service_version="1.1"))
    sides = {"selector": '{service_version="1.1"}', "baseline_selector": '{service_version="1.0"}'}
    answer = api.json(PATH, **sides)
    assert re.match(
        r"1\.1 against 1\.0: GET /checkout: \+(19|20) % CPU .*, nearly all in price_rules\.", answer["sentence"]
    )
    assert answer["operations"][0]["sentence"].startswith("GET /checkout: +")
    unnamed = {"selector": '{service_version=~"1.1"}', "baseline_selector": sides["baseline_selector"]}
    assert api.json(PATH, **unnamed)["sentence"].startswith("GET /checkout: +")
    other = {"selector": '{service_version="1.1", service="shop"}', "baseline_selector": '{service_version=""}'}
    assert api.json(PATH, **other)["sentence"].startswith("GET /checkout: new")
    without = api.json(PATH, selector=sides["selector"], baseline_selector='{service_version=""}')["sentence"]
    assert without.startswith("1.1 against no service_version: GET /checkout: new")
    (row,) = answer["operations"]
    assert (row["requests"], row["baseline_requests"]) == (2000, 2000)


def test_where_no_clock_was_read_the_samples_are_counted(api: Api, client: Client) -> None:
    insert_sides(client, COSTS | {"price_rules": 30.0}, clock=False)
    answer = api.json(PATH, **SIDES)
    (row,) = answer["operations"]
    assert (row["cpu_by"], row["status"]) == ("samples", "changed")
    assert row["cpu"]["change_low"] < 39.9 / 26.2 - 1 < row["cpu"]["change_high"]
    assert re.match(
        r"new against old: GET /checkout: \+\d\d % sampled CPU a request .* in price_rules\.", answer["sentence"]
    )


def test_the_clock_may_tell_of_a_change_whose_function_samples_do_not_tell(api: Api, client: Client) -> None:
    insert_sides(client, SLOWER, requests=300)
    answer = api.json(PATH, **SIDES)
    row = answer["operations"][0]
    assert row["status"] == "changed"
    samples, before = (row["went_to"][name] for name in ("samples", "baseline_samples"))
    few = f"; the samples do not tell in which functions: {before} and {samples} samples; "
    cure = r"about \d+ more minutes of each side would tell(, or \d times the frequency)?\."
    assert re.fullmatch(cure, answer["sentence"].partition(few)[2]), answer["sentence"]


def test_few_requests_tell_nothing(api: Api, client: Client) -> None:
    insert_sides(client, {name: 3 * cost for name, cost in COSTS.items()}, requests=29)
    answer = api.json(PATH, **SIDES)
    assert (answer["operations"][0]["status"], answer["operations"][0]["cpu"]["change"]) == ("unsure", None)
    assert "29 and 29 requests are too few to tell" in answer["sentence"]
    assert answer["sentence"].endswith("; about 3 more minutes of each side would tell.")


def test_what_is_not_certain_is_so_after_about_the_time_that_the_sentence_says(api: Api, client: Client) -> None:
    slower, minutes = COSTS | {"price_rules": 1.1 * 16.3}, 3
    insert_sides(client, slower, requests=100, spread=1.0)
    times = {"start": START_S, "end": START_S + 60 * minutes}
    sentence = api.json(PATH, **SIDES, **times)["sentence"]
    said = re.search(r"not certain .*; about (\d+) more minutes of each side would tell\.$", sentence)
    assert said is not None, sentence
    more = int(said[1])
    again = {"requests": 100 * more // minutes, "seconds": 60.0 * more, "spread": 1.0}
    sides = ((COSTS, "old"), (slower, "new"))
    later = [Version(costs, 60.0 * minutes, service=service, **again) for costs, service in sides]
    insert_versions(client, *later, seed=2)
    answer = api.json(PATH, **SIDES, **times | {"end": START_S + 60 * (minutes + more)})
    assert answer["operations"][0]["status"] in ("changed", "same"), (sentence, answer["sentence"])


def test_requests_that_fail_are_said_beside_their_cpu(api: Api, client: Client) -> None:
    insert_versions(client, Version(COSTS, 0, service="old"), Version(COSTS, 0, service="new", errors=100))
    answer = api.json(PATH, **SIDES)
    (row,) = answer["operations"]
    assert (row["status"], row["errors"]["status"], row["errors"]["rate"]) == ("same", "changed", 0.05)
    assert answer["sentence"].endswith("; 0 to 5 % errors.")
    assert row["errors"]["change_low"] < 0.05 < row["errors"]["change_high"]


def test_a_minute_of_both_time_ranges_belongs_to_neither(api: Api, client: Client) -> None:
    """Two runs follow each other within a minute."""
    insert_versions(client, Version(COSTS, 0, seconds=150), Version(SLOWER, 150, seconds=150))
    runs = {"baseline_start": START_S, "baseline_end": START_S + 150, "start": START_S + 150, "end": START_S + 300}
    answer = api.json(PATH, **runs)
    assert answer["baseline_end"] < answer["start"]
    true = sum(SLOWER.values()) / sum(COSTS.values()) - 1
    cpu = answer["operations"][0]["cpu"]
    assert cpu["change_low"] < true < cpu["change_high"]
    refused = api.get(PATH, **runs | {"baseline_end": START_S + 130, "start": START_S + 140, "end": START_S + 170})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_time")


def test_nothing_changed_in_twenty_services(api: Api, client: Client) -> None:
    services = [Version(COSTS, at_s, 400, service=f"s{n}", spread=0.8) for n in range(20) for at_s in (0, 240)]
    insert_versions(client, *services)
    answer = api.json(PATH, **NOW, **BEFORE)
    assert answer["comparisons"] == 20
    for row in answer["operations"]:
        assert {row[cost]["status"] for cost in ("cpu", "duration", "errors")} <= {"same", "unsure"}
    assert re.fullmatch(r"No certain change of CPU a request in 20 operations: .*\.", answer["sentence"])


@pytest.mark.usefixtures("two")
def test_labels_that_requests_do_not_have_are_left_out_unless_only_they_differ(api: Api, client: Client) -> None:
    insert_series(client, [{"service": "shop", "color": "new"}], SEEN)
    both = {"selector": '{color="new"}', "baseline_selector": '{color="old"}', "skip_labels": True}
    answer = api.json(PATH, **NOW, **BEFORE, **both)
    assert (answer["skipped_labels"], answer["selector"], answer["count"]) == (["color"], "{}", 4)
    same = api.json(PATH, **both)
    assert (same["operations"], same["sentence"]) == (
        [],
        "Requests have no label color, by which the two sides differ.",
    )
    assert api.get(PATH, **both | {"skip_labels": False}).json()["error"]["code"] == "bad_selector"


def test_what_cannot_be_compared_is_said(api: Api) -> None:
    assert api.json(PATH, **NOW, **BEFORE)["sentence"] == "There were no requests on either side."
    for parameters, code in (
        ({}, "no_baseline"),
        (BEFORE | {"profile_type": "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"}, "bad_parameter"),
        (BEFORE | {"selector": "{"}, "bad_selector"),
        (BEFORE | {"limit": "0"}, "bad_parameter"),
    ):
        answer = api.get(PATH, **parameters)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


@pytest.mark.usefixtures("two")
def test_the_graph_of_an_operation_is_compared_by_what_a_request_costs(api: Api) -> None:
    """By shares, what became slower makes everything else look faster."""
    selector = f'{{operation="{CHECKOUT}"}}'
    diff = api.json("/api/v1/diff", **NOW, **BEFORE, selector=selector, frames="own")
    assert diff["scaling"] == "request"
    now, before = diff["total"] * diff["scale"], diff["baseline_total"] * diff["baseline_scale"]
    assert (now, before) == (pytest.approx(31.1e6, rel=0.02), pytest.approx(26.2e6, rel=0.02))
    functions = {diff["strings"][name]: row for row, name in enumerate(diff["functions"]["name"])}
    for function in SLOWER:
        row = functions[function]
        costs = [diff["functions"][f"{side}flat"][row] * diff[f"{side}scale"] for side in ("", "baseline_")]
        assert costs == [pytest.approx(1e6 * of[function], rel=0.25) for of in (SLOWER, COSTS)]
    assert diff["functions"]["changed"][functions["price_rules"]] == 1
    assert diff["functions"]["changed"][functions["hash_cart"]] == 0
    assert api.json("/api/v1/diff", **NOW, **BEFORE, selector=selector, absolute="true")["scaling"] == "value"


@pytest.mark.usefixtures("two")
def test_the_same_requests_are_not_compared_with_themselves(api: Api) -> None:
    overlapping = {"baseline_start": str(START_S + 120), "baseline_end": str(START_S + 300)}
    for times in ({"baseline_start": NOW["start"], "baseline_end": NOW["end"]}, overlapping):
        assert "the same requests" in api.get(PATH, **NOW, **times).text
    assert api.json(PATH, **NOW, **overlapping, selector='{service="new"}', baseline_selector='{service="old"}')
    misspelt = api.get(PATH, **NOW, **BEFORE, selector='{servce="shop"}', skip_labels="true").text
    assert "no samples have a label 'servce'" in misspelt


def test_now_is_one_moment_in_both_times(api: Api) -> None:
    last = {"start": "now-15m", "end": "now", "baseline_start": "now-15m", "baseline_end": "now"}
    answer = api.json("/api/v1/diff", **last)
    assert (answer["start"], answer["end"]) == (answer["baseline_start"], answer["baseline_end"])
