from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, frame

MAIN, HOT, REC = frame("main"), frame("hot"), frame("rec")
LIBC = Frame(("memcpy",), 77, "/lib/libc.so.6")


def test_recursion_counts_once_in_the_cumulative_column(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, REC, HOT, REC, REC), 5), Sample((MAIN, REC), 3), Sample((MAIN, HOT), 2)])
    answer = api.json("/api/v1/top")
    assert [(r["name"], r["flat"], r["cumulative"]) for r in answer["top"]] == [
        ("rec", 8, 8), ("hot", 2, 7), ("main", 0, 10),
    ]  # fmt: skip
    by_cumulative = api.json("/api/v1/top", order="cumulative", limit=1)
    assert by_cumulative["top"][0]["name"] == "main"
    assert by_cumulative["rest"] == {"rows": 2, "flat": 10}


def test_a_table_by_module_sums_up_its_functions(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, LIBC), 5), Sample((MAIN, HOT), 2), Sample((), 1)])
    rows = {r["name"]: (r["flat"], r["cumulative"]) for r in api.json("/api/v1/top", by="module")["top"]}
    assert rows == {"/lib/libc.so.6": (5, 5), "/usr/bin/checkout": (2, 7), "[no stack]": (1, 1)}
