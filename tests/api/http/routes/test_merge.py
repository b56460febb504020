from collections import Counter
from typing import Any, cast

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, frame, insert_locations, insert_nodes, random_samples

MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")


def collapsed(samples: list[Sample]) -> Counter[str]:
    """What the text should say, reckoned the slow way."""
    lines: Counter[str] = Counter()
    for sample in samples:
        names = [name for part in sample.stack for name in part.names] or ["[no stack]"]
        lines[";".join(name.replace(";", ":").replace("\n", " ") for name in names)] += sample.value
    return Counter({line: value for line, value in lines.items() if value})


def read_collapsed(text: str) -> Counter[str]:
    lines: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        lines[stack] += int(value)
    return lines


def test_stacks_are_merged_and_counted_from_the_root(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT))] * 3 + [Sample((MAIN, COLD))])
    assert api.get("/api/v1/merge", format="collapsed").text == "main;hot 30000000\nmain;cold 10000000\n"
    tree = api.json("/api/v1/merge")
    assert (tree["total"], tree["samples"], tree["stacks"]) == (40_000_000, 4, 2)
    names = [tree["strings"][tree["functions"]["name"][f]] for f in tree["nodes"]["function"]]
    assert names == ["total", "main", "hot", "cold"]
    assert tree["nodes"]["parent"] == [-1, 0, 1, 1]
    assert tree["nodes"]["total"] == [40_000_000, 40_000_000, 30_000_000, 10_000_000]
    assert tree["nodes"]["self"] == [0, 0, 30_000_000, 10_000_000]


def test_a_profile_without_samples_is_a_root_with_nothing(api: Api) -> None:
    tree = api.json("/api/v1/merge")
    assert tree["nodes"] == {"parent": [-1], "function": [0], "self": [0], "total": [0]}
    assert api.get("/api/v1/merge", format="collapsed").text == ""


@pytest.mark.parametrize("seed", range(3))
def test_what_is_shown_is_what_was_sampled(api: Api, client: Client, seed: int) -> None:
    samples = random_samples(seed)
    fill(client, samples)
    assert read_collapsed(api.get("/api/v1/merge", format="collapsed").text) == collapsed(samples)
    assert api.json("/api/v1/merge")["total"] == sum(s.value for s in samples)
    cart = [s for s in samples if s.labels["service"] == "cart" and s.labels["version"].startswith("1.4")]
    answer = api.get("/api/v1/merge", format="collapsed", selector='{service="cart", version=~"1\\\\.4.*"}')
    assert read_collapsed(answer.text) == collapsed(cart)


def test_symbols_that_come_later_name_what_was_stored_before(api: Api, client: Client) -> None:
    bare = Frame((), 0x1234, "/lib/libc.so.6")
    fill(client, [Sample((MAIN, bare))])
    assert api.get("/api/v1/merge", format="collapsed").text == "main;[libc.so.6] 10000000\n"
    by_address = api.get("/api/v1/merge", format="collapsed", by="address").text
    assert by_address.endswith(";libc.so.6+0x1234 10000000\n")
    insert_locations(client, {Frame(("memcpy",), 0x1234, "/lib/libc.so.6")}, version=5)
    cast(Any, api.http.app).state.shared.stacks._memory.location_cache._next_refresh = 0.0  # the pause is over
    assert api.get("/api/v1/merge", format="collapsed").text == "main;memcpy 10000000\n"


def test_a_location_that_was_missing_gets_its_name_in_every_format(api: Api, client: Client) -> None:
    """Also if another question finds it, within the pause after the last look at all locations."""
    fill(client, [Sample((MAIN, HOT))], locations=False)
    assert "[unresolved location" in api.get("/api/v1/merge", format="collapsed").text
    insert_locations(client, {MAIN, HOT})
    cast(Any, api.http.app).state.shared.stacks._memory.location_cache._next_refresh = float("inf")
    assert api.get("/api/v1/merge", by="line").status_code == 200  # reads the location
    assert api.get("/api/v1/merge", format="collapsed").text == "main;hot 10000000\n"


def test_values_that_do_not_fit_into_64_bits_are_refused(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), value=2**62)])
    assert api.json("/api/v1/merge")["total"] == 2**62
    fill(client, [Sample((MAIN, HOT), value=2**62, labels={"service": name}) for name in ("cart", "pay")])
    for path in ("merge", "top", "timeline"):
        answer = api.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "query_too_large")
    assert api.get("/api/v1/merge", group_by="service").status_code == 422


def test_stacks_that_have_not_arrived_keep_their_value(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT))], nodes=False, locations=False)
    assert api.get("/api/v1/merge", format="collapsed").text == "[unresolved stack] 10000000\n"
    insert_nodes(client, {(MAIN, HOT)})
    assert api.get("/api/v1/merge", format="collapsed").text.count("[unresolved location") == 2
    insert_locations(client, {MAIN, HOT})
    assert api.get("/api/v1/merge", format="collapsed").text == "main;hot 10000000\n"
