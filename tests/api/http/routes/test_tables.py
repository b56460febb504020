from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill, frame

MAIN, HOT, REC = frame("main"), frame("hot"), frame("rec")
LIBC = Frame(("memcpy",), 77, "/lib/libc.so.6")


def test_recursion_counts_once_in_the_cumulative_column(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, REC, HOT, REC, REC), 5), Sample((MAIN, REC), 3), Sample((MAIN, HOT), 2)])
    found = api.json("/api/v1/top")
    assert [(r["name"], r["flat"], r["cumulative"]) for r in found["top"]] == [
        ("rec", 8, 8), ("hot", 2, 7), ("main", 0, 10),
    ]  # fmt: skip
    by_cumulative = api.json("/api/v1/top", order="cumulative", limit=1)
    assert by_cumulative["top"][0]["name"] == "main"
    assert by_cumulative["rest"] == {"rows": 2, "flat": 10}


def test_a_table_by_module_sums_up_its_functions(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, LIBC), 5), Sample((MAIN, HOT), 2), Sample((), 1)])
    rows = {r["module"]: (r["flat"], r["cumulative"]) for r in api.json("/api/v1/top", by="module")["top"]}
    assert rows == {"/lib/libc.so.6": (5, 5), "/usr/bin/checkout": (2, 7), "[no stack]": (1, 1)}


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
    found = api.json("/api/v1/series", step="1m", sum_by="service, version")
    assert found["times"][:2] == [START_S * 1000, (START_S + 60) * 1000]
    assert len(found["times"]) == 60
    assert [(s["labels"], sum(s["values"])) for s in found["series"]] == [
        ({"service": "cart", "version": "2"}, 100), ({"service": "checkout", "version": ""}, 12),
    ]  # fmt: skip
    assert found["series"][1]["values"][:2] == [5, 7]
    limited = api.json("/api/v1/series", step="3600", sum_by="service", limit=1)
    assert (limited["rest"]["series"], limited["rest"]["values"]) == (1, [12])
    whole = api.json("/api/v1/series")
    assert [sum(s["values"]) for s in whole["series"]] == [112]
    assert whole["series"][0]["labels"] == {}


def test_labels_and_their_values_are_listed(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN,)), Sample((MAIN,), labels={"service": "cart", "k8s.pod": "a-1"})])
    assert api.json("/api/v1/labels") == {"labels": ["k8s.pod", "service"], "more": False}
    assert api.json("/api/v1/labels", selector='{service="checkout"}') == {"labels": ["service"], "more": False}
    assert api.json("/api/v1/labels/service/values") == {"values": ["cart", "checkout"], "more": False}
    assert api.json("/api/v1/labels/service/values", limit=1) == {"values": ["cart"], "more": True}
    assert api.json("/api/v1/labels/service/values", contains="OUT")["values"] == ["checkout"]
    assert api.json("/api/v1/labels/k8s.pod/values")["values"] == ["a-1"]
    assert api.json("/api/v1/labels/service/values", start="1000", end="2000")["values"] == []


def test_profile_types_are_listed(api: Api, client: Client) -> None:
    assert api.json("/api/v1/profile-types") == {"profile_types": []}
    other = "memory:alloc_space:bytes:space:bytes"
    fill(client, [Sample((MAIN,)), Sample((MAIN,), profile_type=other)])
    found = api.json("/api/v1/profile-types")["profile_types"]
    assert [t["id"] for t in found] == [other, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"]
    assert found[0]["sample_unit"] == "bytes"
    assert api.json("/api/v1/merge", profile_type=other)["unit"] == "bytes"
