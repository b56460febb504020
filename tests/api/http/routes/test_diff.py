import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame

MAIN, HOT, OLD, NEW = frame("main"), frame("hot"), frame("old"), frame("new")


def sample(version: str, *stack: object) -> Sample:
    return Sample(stack, labels={"service": "checkout", "version": version})  # type: ignore[arg-type]


@pytest.fixture
def two_versions(client: Client) -> None:
    fill(client, [sample("1.5", MAIN, NEW)] + [sample("1.4", MAIN, HOT)] * 3 + [sample("1.4", MAIN, OLD)])


@pytest.mark.usefixtures("two_versions")
def test_both_sides_stand_on_one_tree_and_the_smaller_is_scaled_up(api: Api) -> None:
    answer = api.json("/api/v1/diff", selector='{version="1.5"}', baseline_selector='{version="1.4"}')
    assert (answer["total"], answer["baseline_total"]) == (10_000_000, 40_000_000)
    assert (answer["scaling"], answer["scale"], answer["baseline_scale"]) == ("share", 4.0, 1.0)
    names = [answer["strings"][answer["functions"]["name"][f]] for f in answer["nodes"]["function"]]
    rows = dict(zip(names, zip(answer["nodes"]["total"], answer["nodes"]["baseline_total"], strict=True), strict=True))
    assert rows == {
        "total": (10_000_000, 40_000_000), "main": (10_000_000, 40_000_000),
        "new": (10_000_000, 0), "hot": (0, 30_000_000), "old": (0, 10_000_000),
    }  # fmt: skip
    assert answer["baseline_start"] == answer["start"]


@pytest.mark.usefixtures("two_versions")
def test_an_absolute_diff_and_one_with_an_empty_side_scale_nothing(api: Api) -> None:
    answer = api.json("/api/v1/diff", selector='{version="1.5"}', baseline_selector='{version="1.4"}', absolute=True)
    assert (answer["scaling"], answer["scale"], answer["baseline_scale"]) == ("value", 1.0, 1.0)
    before = {"baseline_start": str(START_S - 3600), "baseline_end": str(START_S)}
    answer = api.json("/api/v1/diff", **before)
    assert (answer["baseline_total"], answer["scale"], answer["baseline_scale"]) == (0, 1.0, 1.0)


def test_changes_that_the_samples_support_are_marked(api: Api, client: Client) -> None:
    for version, counts in (("1.4", (100, 450, 450)), ("1.5", (190, 405, 405))):
        labels = {"service": "shop", "version": version}
        for part, count in zip((HOT, OLD, NEW), counts, strict=True):
            fill(client, [Sample((MAIN, part), 10_000_000 * count, count, labels=labels)])
    sides = {"selector": '{version="1.5"}', "baseline_selector": '{version="1.4"}'}
    answer = api.json("/api/v1/diff", **sides)
    for columns in (answer["functions"], answer["nodes"]):
        rows = columns.get("function", range(len(columns["changed"])))
        names = [answer["strings"][answer["functions"]["name"][row]] for row in rows]
        changed = dict(zip(names, columns["changed"], strict=True))
        assert changed == {"total": 0, "main": 0, "hot": 1, "old": 0, "new": 0}
    empty = api.json("/api/v1/diff", **sides | {"baseline_selector": '{version="none"}'})
    assert (empty["functions"]["changed"], empty["nodes"]["changed"]) == (None, None)


def test_gauges_are_compared_by_value(api: Api, client: Client) -> None:
    """A service with twice as many goroutines of each kind must not look the same."""
    kind = "goroutines:goroutine:count:goroutine:count"
    for version, count in (("1.4", 100), ("1.5", 200)):
        labels = {"service": "shop", "version": version}
        fill(client, [Sample((MAIN,), count, labels=labels, profile_type=kind)])
    sides = {"selector": '{version="1.5"}', "baseline_selector": '{version="1.4"}', "profile_type": kind}
    for absolute in (True, False):
        answer = api.json("/api/v1/diff", absolute=absolute, **sides)
        assert (answer["total"], answer["baseline_total"]) == (200, 100)
        assert (answer["scaling"], answer["scale"], answer["baseline_scale"]) == ("value", 1.0, 1.0)
        assert answer["nodes"]["changed"] is None


@pytest.mark.usefixtures("two_versions")
def test_as_text_a_diff_has_both_values_the_baseline_first(api: Api) -> None:
    answer = api.get(
        "/api/v1/diff", selector='{version="1.5"}', baseline_selector='{version="1.4"}', format="collapsed"
    )
    assert sorted(answer.text.splitlines()) == ["main;hot 30000000 0", "main;new 0 10000000", "main;old 10000000 0"]


@pytest.mark.usefixtures("two_versions")
def test_what_a_diff_cuts_is_counted_on_both_sides(api: Api) -> None:
    answer = api.json("/api/v1/diff", baseline_selector='{version="1.4"}', selector='{version="1.5"}', max_nodes=2)
    assert answer["cut"] == {"nodes": 3, "value": 10_000_000, "baseline_value": 40_000_000}
    assert answer["nodes"]["total"][0] == 10_000_000


def test_a_diff_without_a_baseline_is_refused(api: Api) -> None:
    answer = api.get("/api/v1/diff")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_baseline")
