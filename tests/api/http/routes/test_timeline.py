from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame

MAIN = frame("main")


def test_a_timeline_sums_up_steps_by_label(api: Api, client: Client) -> None:
    cart = {"service": "cart", "version": "2"}
    fill(
        client,
        [
            Sample((MAIN,), 5, time_s=START_S + 1),
            Sample((MAIN,), 7, time_s=START_S + 61),
            Sample((MAIN,), 100, labels=cart, time_s=START_S + 3599),
        ],
    )
    answer = api.json("/api/v1/timeline", step="1m", sum_by="service, version")
    assert answer["times_unix_milli"][:2] == [START_S * 1000, (START_S + 60) * 1000]
    assert len(answer["times_unix_milli"]) == 60
    assert [(group["labels"], sum(group["values"])) for group in answer["groups"]] == [
        ({"service": "cart", "version": "2"}, 100), ({"service": "checkout", "version": ""}, 12),
    ]  # fmt: skip
    assert answer["groups"][1]["values"][:2] == [5, 7]
    limited = api.json("/api/v1/timeline", step="3600", sum_by="service", limit=1)
    assert (limited["rest"]["groups"], limited["rest"]["values"]) == (1, [12])
    ungrouped = api.json("/api/v1/timeline")
    assert [sum(group["values"]) for group in ungrouped["groups"]] == [112]
    assert ungrouped["groups"][0]["labels"] == {}


def test_a_timeline_of_nothing_has_no_groups_of_labels(api: Api) -> None:
    nothing = {"selector": '{service="nothing"}', "step": "5m"}
    assert api.json("/api/v1/timeline", **nothing, sum_by="service")["groups"] == []
    (group,) = api.json("/api/v1/timeline", **nothing)["groups"]
    assert (group["labels"], set(group["values"])) == ({}, {0})
