"""Stacks are resolved whatever the tables contain, and however many nodes stay in memory."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.queries.database import Database
from api.queries.selection import id_lists
from api.settings import ApiSettings
from api.tree import call_tree
from api.tree.call_tree import CallTree
from api.tree.stack_cache import StackCache
from icestream.clickhouse.client import Clients
from tests.api.conftest import RANGE, Api
from tests.api.fill import (
    SEEN,
    Frame,
    Sample,
    fill,
    frame,
    insert_locations,
    insert_nodes,
    insert_samples,
    random_samples,
)
from tests.api.http.routes.test_merge import collapsed, read_collapsed
from tests.data.tables import insert_columns
from tests.waiting import PATIENCE_S


def merged(api: Api) -> Counter[str]:
    profile = api.get("/api/v1/merge", format="pprof")
    assert profile.status_code == 200
    answer = api.get("/api/v1/merge", format="collapsed")
    assert answer.status_code == 200, answer.text
    return read_collapsed(answer.text)


@pytest.mark.parametrize(
    ("rows_for_one", "ids", "queries", "most"),
    [(0, 7, 10**6, 0), (0, 7, 2, 0), (0, 7, 2, 10**6), (0, 10**6, 10**6, 0), (10**6, 7, 2, 0), (10**6, 7, 2, 10**6)],
)
def test_stacks_are_read_level_by_level_or_chosen_from_all(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch, rows_for_one: int, ids: int, queries: int, most: int
) -> None:
    monkeypatch.setattr(id_lists, "IDS_PER_QUERY", ids)
    monkeypatch.setattr(id_lists, "MAX_QUERIES", queries)
    monkeypatch.setattr(call_tree, "ROWS_FOR_ONE", rows_for_one)
    monkeypatch.setattr(call_tree, "_NODES_PER_STACK", most)
    first, second = random_samples(20), random_samples(21)
    fill(client, first)
    assert merged(api) == collapsed(first)
    fill(client, second)
    assert merged(api) == collapsed(first + second)


def test_only_the_nodes_of_the_selected_stacks_are_kept(engine: str, database: str, client: Client) -> None:
    samples = random_samples(7)
    fill(client, samples)
    read = Database(Clients(engine, database=database), ApiSettings())
    parents = {row[0]: row[1] for row in client.query("SELECT node_id, parent_id FROM nodes").result_rows}
    for stack_id in client.query("SELECT DISTINCT stack_id FROM samples WHERE stack_id != 0 LIMIT 5").result_columns[0]:
        tree = CallTree(read, max_nodes=10**6)
        tree.rows(np.array([stack_id], np.uint64))
        path, at = 1, stack_id
        while at := parents[at]:
            path += 1
        assert len(tree) == path + 1


def test_a_full_memory_starts_anew_and_answers_stay_right(engine: str, database: str, client: Client) -> None:
    app = create_app(ApiSettings(api_cached_nodes=3), Clients(engine, database=database))
    samples = random_samples(30)
    fill(client, samples)
    with TestClient(app, base_url="http://localhost") as http:
        for _ in range(3):
            text = http.get("/api/v1/merge", params=RANGE | {"format": "collapsed"}).text
            assert read_collapsed(text) == collapsed(samples)


def test_a_slow_query_for_one_graph_keeps_no_other_from_being_drawn(
    engine: str, database: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, random_samples(40))
    clients = Clients(engine, database=database)
    cache = StackCache(Database(clients, ApiSettings()), 10**6)
    ids = np.array(
        client.query("SELECT DISTINCT stack_id FROM samples WHERE stack_id != 0").result_columns[0], np.uint64
    )
    known = cache.functions_of(ids[:5])
    asked, go_on, borrowed = threading.Event(), threading.Event(), clients.borrowed

    @contextmanager
    def slow() -> Iterator[Client]:
        if threading.current_thread().name.startswith("slow"):
            asked.set()
            assert go_on.wait(PATIENCE_S)
        with borrowed() as answering:
            yield answering

    monkeypatch.setattr(clients, "borrowed", slow)
    with ThreadPoolExecutor(1, "slow") as one, ThreadPoolExecutor(1) as other:
        graph = one.submit(cache.functions_of, ids)
        try:
            assert asked.wait(PATIENCE_S)
            assert (other.submit(cache.functions_of, ids[:5]).result(PATIENCE_S).leaves == known.leaves).all()
            other.submit(cache.functions_of, ids).result(PATIENCE_S)  # it reads the same stacks meanwhile
        finally:
            go_on.set()
        assert (graph.result().leaves == cache.functions_of(ids).leaves).all()


def test_cycles_and_endless_chains_of_nodes_keep_their_value(api: Api, client: Client) -> None:
    parents = {1: 2, 2: 1, 3: 3} | {1000 + i: 999 + i if i else 0 for i in range(4000)}
    nodes, stacks = list(parents), [1, 2, 3, 1000 + 3999, 1000 + 100]
    insert_columns(client, "nodes", node_id=nodes, parent_id=list(parents.values()), location_id=9, last_seen=SEEN)
    insert_columns(client, "samples", time=SEEN, stack_id=stacks, value=10)
    lines = merged(api)
    assert lines["[unresolved stack]"] >= 30
    assert sum(lines.values()) == 50
    assert api.json("/api/v1/merge")["total"] == 50


def test_strings_that_are_no_text_and_odd_locations_are_shown(api: Api, client: Client) -> None:
    odd = [
        Frame(("",), 0x10, ""),
        Frame(("a", "", "b"), 0x20),
        Frame(("x" * 5000,), 0x30),
        Frame((), 2**64 - 1, "/lib/\x00;\nso"),
        Frame((), 5, "[kernel]", "", 2),
        Frame(("jitted",), 0, "[jit]", "", 4),
        Frame(("f",), 6, "/bin/y", "", 77),
    ]
    fill(client, [Sample((part,), 1) for part in odd])
    client.command(
        "INSERT INTO locations SELECT location_id, 1, unhex('ff00'), unhex('fffe'), 1, 9,"
        " [(unhex('c328'), unhex('ff'), 4294967295, 4294967295)], now() FROM locations WHERE address = 5"
    )
    lines = merged(api)
    assert sum(lines.values()) == len(odd)
    assert lines["[unknown]"] == 1
    assert lines["b;[checkout];a"] == 1
    assert lines["jitted"] == 1
    assert lines["\ufffd("] == 1
    assert sum(row["flat"] for row in api.json("/api/v1/top", by="module")["top"]) == len(odd)
    assert api.json("/api/v1/merge", format="speedscope")["profiles"][0]["endValue"] == len(odd)


def test_queries_at_the_same_time_see_whole_answers_while_stacks_and_names_arrive(
    engine: str, database: str, client: Client
) -> None:
    app = create_app(ApiSettings(), Clients(engine, database=database))
    samples = [Sample((frame("main"), Frame((), i + 1)), 1) for i in range(200)]
    insert_samples(client, samples)
    failed: list[str] = []
    done = threading.Event()
    with TestClient(app, base_url="http://localhost") as http:

        def ask(output_format: str) -> None:
            while not done.is_set():
                answer = http.get("/api/v1/merge", params=RANGE | {"format": output_format})
                if answer.status_code != 200 or (
                    output_format == "collapsed" and sum(read_collapsed(answer.text).values()) != 200
                ):
                    failed.append(answer.text)

        threads = [
            threading.Thread(target=ask, args=(output_format,)) for output_format in ("collapsed", "pprof", "tree")
        ]
        for thread in threads:
            thread.start()
        for start in range(0, 200, 40):
            part = samples[start : start + 40]
            insert_nodes(client, {s.stack for s in part})
            insert_locations(client, {f for s in part for f in s.stack})
            addresses = [s.stack[1].address for s in part]
            insert_locations(client, {Frame((f"named_{address}",), address) for address in addresses}, version=7)
        done.set()
        for thread in threads:
            thread.join()
        assert failed == []
        expected = Counter({f"main;named_{i + 1}": 1 for i in range(200)})
        deadline = time.monotonic() + 300  # names are looked for with pauses
        while ask_collapsed(http) != expected:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ask_collapsed(http: TestClient) -> Counter[str]:
    return read_collapsed(http.get("/api/v1/merge", params=RANGE | {"format": "collapsed"}).text)
