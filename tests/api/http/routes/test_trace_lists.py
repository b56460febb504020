import pytest
from clickhouse_connect.driver.client import Client
from httpx2 import Response

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.test_openapi import check

MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")
SLOW, FAST, OTHER = b"s" * 16, b"f" * 16, b"o" * 16
LISTS = {"trace_ids": [SLOW.hex()], "baseline_trace_ids": [FAST.hex()]}


@pytest.fixture(autouse=True)
def three_requests(client: Client) -> None:
    fill(
        client,
        [Sample((MAIN, HOT), trace_id=SLOW)] * 3
        + [Sample((MAIN,), trace_id=SLOW, labels={"service": "cart"}, time_s=START_S + 7200)]
        + [Sample((MAIN, COLD), trace_id=FAST), Sample((MAIN,), trace_id=OTHER), Sample((MAIN,))],
    )


def ask(api: Api, route: str, body: object, **parameters: str) -> Response:
    return api.http.post(f"/api/v1/{route}", json=body, params=parameters)


def lines(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(answer.text.splitlines())


def test_the_requests_of_a_list_are_merged_whenever_they_ran(api: Api) -> None:
    both = {"trace_ids": [SLOW.hex(), FAST.hex().upper(), FAST.hex()]}
    merged = lines(ask(api, "merge", both, format="collapsed"))
    assert merged == ["main 10000000", "main;cold 10000000", "main;hot 30000000"]
    of_cart = ask(api, "merge", both, format="collapsed", selector='{service="cart"}')
    assert lines(of_cart) == ["main 10000000"]
    within = ask(api, "merge", both, format="collapsed", end=str(START_S + 60), focus="hot")
    assert lines(within) == ["main;hot 30000000"]


def test_the_requests_of_two_lists_are_compared(api: Api) -> None:
    answer = ask(api, "diff", LISTS).json()
    assert (answer["total"], answer["baseline_total"], answer["baseline_scale"]) == (40_000_000, 10_000_000, 4.0)
    times = {name: answer[name] for name in ("start", "end")}  # of all times, which can be given as they are answered
    assert ask(api, "diff", LISTS, **times).json()["total"] == 40_000_000
    compared = lines(ask(api, "diff", LISTS, format="collapsed"))
    assert compared == ["main 0 10000000", "main;cold 10000000 0", "main;hot 0 30000000"]


def test_answers_to_lists_are_as_openapi_says(api: Api) -> None:
    document = api.http.get("/openapi.json").json()
    for route in ("merge", "diff"):
        content = document["paths"][f"/api/v1/{route}"]["post"]["responses"]["200"]["content"]["application/json"]
        check(
            document, content, ask(api, route, LISTS if route == "diff" else {"trace_ids": LISTS["trace_ids"]}).json()
        )


def test_10_000_requests_are_one_query_and_more_are_refused_with_what_to_do(api: Api) -> None:
    many = [f"{i:032x}" for i in range(1, 10_000)] + [SLOW.hex()]
    assert ask(api, "merge", {"trace_ids": many}).json()["total"] == 40_000_000
    answer = ask(api, "merge", {"trace_ids": ["f" * 32, *many]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "query_too_large")
    assert "10001 trace IDs" in error["message"]
    assert "leave some out" in error["hint"]
    answer = ask(api, "merge", {"trace_ids": ["f" * 3_000_000]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "query_too_large")


@pytest.mark.parametrize(
    ("route", "body", "code", "said"),
    [
        ("merge", {}, "bad_body", "trace_ids"),
        ("merge", {"trace_ids": []}, "bad_body", "trace_ids"),
        ("merge", {"trace_ids": "ab"}, "bad_body", "trace_ids"),
        ("merge", {"trace_ids": [5]}, "bad_body", "trace_ids.0"),
        ("merge", {"trace_ids": ["xyz"]}, "bad_trace_id", "xyz"),
        ("merge", {"trace_ids": ["0" * 32]}, "bad_trace_id", "0000"),
        ("merge", {**LISTS}, "bad_body", "baseline_trace_ids"),
        ("diff", {"trace_ids": LISTS["trace_ids"]}, "bad_body", "baseline_trace_ids"),
        ("merge", [], "bad_body", "the body"),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_where(api: Api, route: str, body: object, code: str, said: str) -> None:
    answer = ask(api, route, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert said in error["message"]


def test_what_is_no_json_is_refused(api: Api) -> None:
    for content in (b"", b"{", b"\xff\xfe"):
        answer = api.http.post("/api/v1/merge", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_body")
    assert ask(api, "merge", LISTS, group_by="service").json()["error"]["code"] in ("unknown_parameter", "bad_body")
