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


def test_code_without_names_is_one_row_for_each_module_and_one_for_each_address_on_demand(
    api: Api, client: Client
) -> None:
    """Also where some of a file has names, and where an inlined function has none."""
    generated = [Frame((), 0x7F00_0000_0000 + 64 * n, "[anon]", "", 0) for n in range(50)]
    stripped = [Frame((), 0x1000 * n, "/lib/libz.so.1") for n in range(1, 6)]
    named = Frame(("", "inflate"), 0x9000, "/lib/libz.so.1")
    fill(client, [Sample((MAIN, stripped[n % 5], frame), 10) for n, frame in enumerate(generated)])
    fill(client, [Sample((MAIN, named), 7)])
    rows = {r["name"]: (r["flat"], r["cumulative"], r["named"]) for r in api.json("/api/v1/top")["top"]}
    assert rows == {
        "[anon]": (500, 500, False), "[libz.so.1]": (7, 507, False), "main": (0, 507, True),
        "inflate": (0, 7, True),
    }  # fmt: skip
    by_address = [r["name"] for r in api.json("/api/v1/top", by="address", limit=100)["top"]]
    assert sum(name.startswith("[anon]+0x7f") for name in by_address) == 50
    assert sum(name.startswith("libz.so.1+0x") for name in by_address) == 6
    assert {r["name"] for r in api.json("/api/v1/top", by="line")["top"]} >= {"[anon]", "[libz.so.1]"}
    assert api.get("/api/v1/merge", format="collapsed", focus="anon").text.count("\n") == 1
