"""Days of which only some requests are kept: what is asked of operations and samples is answered as before, on one
server and on a cluster, where the rows of a request may be on several shards."""

import itertools
import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from api.terminal.draw_requests import draw_trace, draw_traces
from icestream.clickhouse.client import Clients, connect
from icestream.clickhouse.thinning import IS_SAMPLED
from sinks.clickhouse.cluster import GLOBAL, ONE_SERVER, alter_table, database_name, of_this_host
from sinks.clickhouse.retention import set_retention
from sinks.requests import kept_requests, replace_requests, thin_requests
from sinks.rollups.changes import insert_settings
from sinks.runner import periodic
from sinks.service import beside_clickhouse
from sinks.settings import SinkSettings
from tests.api.conftest import Api
from tests.api.queries.request_store import OPERATIONS, Requests, Rows
from tests.api.queries.rollup_store import DAY, T0
from tests.api.queries.thinned_days import (
    DAYS,
    RANGE,
    TABLES,
    answers,
    assert_whole,
    ids,
    kept_ids,
    note_work,
    rows_of,
    states,
    step,
    thin,
    truncate,
)
from tests.data.tables import NO_SPAN, insert_rows, to_datetime
from tests.shared_routes import with_built_routes
from tests.sinks.clusters import OnCluster, OneShard, Shards
from tests.sinks.engine import remove_rows
from tests.waiting import wait_until

_numbers = itertools.count(1)
_unused: dict[type[OnCluster], OnCluster] = {}
"""Have all tables and no rows."""


def _kind(kind: type[OnCluster] | None, name: str, in_ci: bool = True) -> Any:
    return pytest.param(kind, id=name, marks=() if in_ci else pytest.mark.soak)


# Shards take several times as long, and what differs on one shard are statements. One test runs on both in CI: the one
# that compares all answers and rows before and after.
ON_SHARDS = pytest.mark.parametrize(
    "clients", [_kind(None, "one server"), _kind(Shards, "shards"), _kind(OneShard, "one shard", False)], indirect=True
)
ON_CLUSTERS = pytest.mark.parametrize(
    "clients", [_kind(Shards, "shards"), _kind(OneShard, "one shard", False)], indirect=True
)


@pytest.fixture(params=[_kind(None, "one server"), _kind(Shards, "shards", False), _kind(OneShard, "one shard", False)])
def clients(request: pytest.FixtureRequest, engine: str) -> Iterator[Clients]:
    kind: type[OnCluster] | None = request.param
    if kind is None:
        yield Clients(engine, database=request.getfixturevalue("database"))
        return
    one = _unused.pop(kind, None) or kind(engine, f"thinned_on_cluster_{next(_numbers)}")
    yield one
    admin = connect(engine)
    remove_rows(admin, one.cluster.local or one.database)
    admin.close()
    one.statements.clear()
    _unused[kind] = one


@pytest.fixture
def requests(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Operations with more than 20 requests in a day are thinned. One request in five has samples, and one in three is
    at work on two hosts."""
    monkeypatch.setattr(kept_requests, "WHOLE_REQUESTS", 20)
    store = Requests(clients, clients.cluster if isinstance(clients, OnCluster) else ONE_SERVER)
    make = store.request
    for tokens in (0, 10_000):  # rows that were replaced leave theirs behind, and come again in the next test
        window = f"MODIFY SETTING non_replicated_deduplication_window = {tokens}"
        store.client.command(f"{alter_table('activity', store.cluster)} {window}")

    def request(at: float) -> Rows:
        rows = make(at)
        if store.count % 3 == 0:
            inner = (store.count * 2 + 1).to_bytes(8, "big")
            for row in (row for of_table in rows.values() for row in of_table if row.get("span_id") == inner):
                row["host_id"] = {"a": "b", "b": "a"}[row["host_id"]]
        return rows if store.count % 5 == 0 else {table: rows[table] for table in rows if table != "samples"}

    monkeypatch.setattr(store, "request", request)
    return store


@pytest.fixture
def api(clients: Clients) -> Iterator[Api]:
    settings = ApiSettings()
    app = with_built_routes(create_app(settings, clients), settings)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as http:
        yield Api(http)


@ON_SHARDS
def test_sums_of_operations_and_samples_stay_and_heavy_and_drawn_requests_are_whole(
    requests: Requests, api: Api
) -> None:
    requests.come(500)
    requests.build()
    before, listed = answers(requests, api), api.json("/api/v1/traces", limit="1000", **RANGE)
    assert listed["thinned_until"] is None
    of_tables = {table: rows_of(requests, table) for table in TABLES}
    thin(requests)
    assert states(requests) == {day: ["choosing", "thinning", "thinned"] for day in DAYS}
    assert answers(requests, api) == before

    drawn, chosen = kept_ids(requests)
    assert_whole(requests, of_tables, drawn | chosen)
    for table, rows in of_tables.items():
        after = rows_of(requests, table)
        assert 0 < len(after) < 0.5 * len(rows), table
        assert any(chosen & set(row) for row in after)
    now_listed = api.json("/api/v1/traces", limit="1000", **RANGE)
    assert now_listed["thinned_until"][:10] == str(DAYS[1] + timedelta(days=1))
    of_trace = {trace["trace_id"]: trace for trace in listed["traces"]}
    assert {trace["trace_id"] for trace in now_listed["traces"]} == of_trace.keys() & {
        each.hex() for each in drawn | chosen
    }
    for trace in now_listed["traces"]:
        assert trace == of_trace[trace["trace_id"]]
    assert "light requests are no longer kept" in draw_traces(now_listed)


def test_the_requests_that_used_most_and_took_longest_are_kept(requests: Requests, api: Api) -> None:
    """Those above the percentile by more than a sketch's error, each operation and day for itself."""
    requests.come(300, first=0.1, days=0.1)
    requests.build()
    all_of = requests.client.query(
        "SELECT service, operation, trace_id, any(e.duration_ns), sum(a.thread_cpu_ns) FROM entry_spans AS e FINAL"
        " LEFT JOIN activity AS a ON a.trace_id = e.trace_id AND a.entry_span_id = e.span_id GROUP BY ALL",
        settings=GLOBAL,
    ).result_rows
    thin(requests)
    kept = ids(requests, "SELECT DISTINCT trace_id FROM entry_spans")
    operations: dict[tuple[str, str], list[Any]] = {}
    for service, operation, *rest in all_of:
        operations.setdefault((service, operation), []).append(rest)
    assert len(operations) == 6
    heavy = 0
    for of_operation in operations.values():
        assert len(of_operation) > 20
        for column in (1, 2):
            values = sorted(row[column] for row in of_operation)
            above = 1.03 * values[int(0.99 * (len(values) - 1))]
            most = [row[0] for row in of_operation if row[column] > above]
            assert kept.issuperset(most)
            heavy += len(most)
    assert heavy > 3
    assert len(kept) < 0.5 * len(all_of)


def test_a_trace_that_lost_rows_says_so(requests: Requests, api: Api) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    sampled = ids(
        requests, "SELECT DISTINCT trace_id FROM trace_samples WHERE trace_id IN (SELECT trace_id FROM activity)"
    )
    thin(requests)
    whole = ids(requests, "SELECT trace_id FROM activity")
    kept, thinned = (min(each).hex() for each in (sampled & whole, sampled - whole))
    assert api.json(f"/api/v1/traces/{kept}/cpu")["thinned"] is False
    answer = api.json(f"/api/v1/traces/{thinned}/cpu")
    assert answer["thinned"] is True
    assert answer["samples"] > 0 == answer["thread_cpu_ns"]
    assert answer["operation"] in OPERATIONS
    assert f'operation="{answer["operation"]}"' in answer["like"]["selector"]
    assert "no longer kept" in draw_trace(answer)


def test_slow_and_fast_requests_are_compared_by_those_that_were_drawn(requests: Requests, api: Api) -> None:
    """Not by the heavy ones, which were kept because they are slow."""
    requests.come(1500, first=0.1, days=0.1)
    requests.build()
    thin(requests)
    ((left, drawn),) = requests.client.query(
        f"SELECT count(), countIf({IS_SAMPLED}) FROM entry_spans FINAL WHERE service = 'cart' AND operation = 'charge'"
    ).result_rows
    assert left > drawn > 1
    answer = api.json(
        "/api/v1/operations/slow", selector='{service="cart", operation="charge"}', slow="51", fast="50", **RANGE
    )
    assert answer["slow"]["requests"] + answer["fast"]["requests"] == drawn
    assert answer["thinned_until"] is not None


def test_a_day_without_many_requests_is_left_alone_and_built_again_after_a_change(
    requests: Requests, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_requests, "WHOLE_REQUESTS", 10_000)
    requests.come(60, first=0.1, days=0.1)
    requests.build()
    rows = {table: rows_of(requests, table) for table in TABLES}
    thin(requests)
    assert {table: rows_of(requests, table) for table in TABLES} == rows
    assert set(map(tuple, states(requests).values())) == {("whole",)}
    assert api.json("/api/v1/traces", **RANGE)["thinned_until"] is None
    requests.come(5, first=0.1, days=0.1)
    requests.build()
    requests.check_everything()


def test_a_thinned_day_stays_as_it_is_and_what_arrives_for_it_is_stored_beside_what_was_kept(
    requests: Requests, api: Api
) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    before = answers(requests, api)
    thin(requests)
    few = {table: rows_of(requests, table) for table in TABLES}
    rows = [requests.request(T0 + 0.15 * DAY) for _ in range(30)]
    for table in ("activity", "spans"):
        requests.bring(table, [row for of_request in rows for row in of_request.get(table, [])])
    requests.build()
    thin(requests, time.time() + 10 * DAY)
    assert states(requests) == {DAYS[0]: ["choosing", "thinning", "thinned"]}
    for table, of_table in few.items():
        now = rows_of(requests, table)
        assert len(now) > len(of_table)
        assert set(now) > set(of_table)
    assert answers(requests, api) == before


def test_heavy_requests_of_which_no_entry_span_came_are_kept(requests: Requests) -> None:
    """As where a process was killed in the middle; also with no known operation, and those of a small service."""
    requests.come(200, first=0.1, days=0.1)
    start = to_datetime(T0 + 0.15 * DAY)
    common = {"start_time": start, "duration_ns": 10**9, "host_id": "a"}
    rows = {}
    for number in range(300):
        for service, operation in (("cart", "charge"), ("cart", ""), ("small", "GET /")):
            if service == "small" and number > 5:
                continue
            trace = f"{service}{operation[:1]}{number:03}".ljust(16).encode()
            rows[trace] = (service, operation, number)
    requests.bring("activity", [
        common | {"trace_id": trace, "service": service, "operation": operation, "span_id": trace[:8],
                  "entry_span_id": trace[:8] if operation else NO_SPAN,
                  "thread_cpu_ns": 10**12 if number == 7 else 10**6}
        for trace, (service, operation, number) in rows.items()
    ])  # fmt: skip
    requests.build()
    thin(requests)
    kept = ids(requests, "SELECT trace_id FROM activity")
    chance = ids(
        requests, f"SELECT arrayJoin({list(map(bytes.decode, rows))})::FixedString(16) AS trace_id WHERE {IS_SAMPLED}"
    )
    expected = {trace for trace, (service, _, number) in rows.items() if service == "small" or number == 7}
    assert kept & rows.keys() == expected | (chance & rows.keys())


def test_nothing_is_deleted_if_a_day_changes_meanwhile_or_a_job_is_at_work(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    copy, choose = thin_requests.copy_kept, thin_requests.choose_traces

    def unnoted(*of: Any) -> None:  # of a sink that dies before it notes a change
        copy(*of)
        insert_rows(requests.client, "activity", [{"trace_id": bytes(16), "start_time": to_datetime(T0)}])
        requests._flush("activity")

    monkeypatch.setattr(thin_requests, "copy_kept", unnoted)
    before = rows_of(requests, "activity")
    thin(requests)
    monkeypatch.setattr(thin_requests, "copy_kept", copy)
    assert states(requests) == {DAYS[0]: ["choosing"]}
    truncate(requests, "thinned_days")
    rows = rows_of(requests, "activity")
    assert len(rows) == len(before) + 1

    def late(*of: Any) -> None:
        choose(*of)
        note_work(requests, "begun")

    monkeypatch.setattr(thin_requests, "choose_traces", late)
    thin(requests)
    monkeypatch.setattr(thin_requests, "choose_traces", choose)
    assert states(requests) == {DAYS[0]: ["choosing"]}
    truncate(requests, "thinned_days")
    thin(requests, time.time() + 10 * DAY)  # the job goes on
    assert states(requests) == {}
    assert rows_of(requests, "activity") == rows
    note_work(requests, "ended")
    thin(requests, time.time() + 10 * DAY)
    assert states(requests) == {DAYS[0]: ["choosing", "thinning", "thinned"]}
    assert len(rows_of(requests, "activity")) < len(rows)


def test_a_day_is_not_thinned_before_the_rollups_of_its_neighbours_are_there(requests: Requests) -> None:
    requests.come(100, first=0.1, days=0.1)
    requests.build()
    requests.come(5, first=1.1, days=0.1)
    thin(requests)
    assert states(requests) == {}
    requests.build()
    thin(requests)
    assert set(states(requests)) == set(DAYS)


class KilledError(Exception):
    pass


class Dying:
    """A client of a process that is killed before the first statement that contains some text."""

    def __init__(self, client: Any, text: str) -> None:
        self._client = client
        self._text = text
        self._is_dead = False

    def command(self, sql: str, **options: Any) -> Any:
        self._run(sql)
        return self._client.command(sql, **options)

    def insert(self, table: str, rows: Any, **options: Any) -> Any:
        self._run(f"{table} {rows}")
        return self._client.insert(table, rows, **options)

    def _run(self, text: str) -> None:
        self._is_dead |= self._text in text
        if self._is_dead:
            raise KilledError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_thinning_that_is_killed_between_two_statements_loses_nothing_and_goes_on(
    requests: Requests, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    before = answers(requests, api)
    rows = {table: rows_of(requests, table) for table in TABLES}
    chosen: set[bytes] = set()
    copies = [f"_{table} SELECT *" for table in ("activity", "spans")]
    replaced = [f"{alter_table(table, requests.cluster)} REPLACE" for table in TABLES]
    steps = ("INSERT INTO kept_traces", "CREATE TABLE", *copies, "'thinning'", *replaced, "DROP TABLE", "'thinned'")
    for text in steps:
        with pytest.raises(KilledError):
            step(requests, client=Dying(requests.client, text))
        assert not step(requests)  # it may be at work
        drawn, now_chosen = kept_ids(requests)
        assert chosen <= now_chosen
        assert_whole(requests, rows, drawn | now_chosen)
        chosen = now_chosen
        noted = "SELECT day, state, noted_time - INTERVAL 2 HOUR FROM thinned_days"
        earlier = [list(row) for row in requests.client.query(noted).result_rows]
        truncate(requests, "thinned_days")
        requests.client.insert("thinned_days", earlier, settings=insert_settings(requests.cluster))
    assert copies_left(requests)
    monkeypatch.setattr(replace_requests, "_LEFT_NS", 0)  # as a day later
    assert step(requests)
    assert not copies_left(requests)
    assert kept_ids(requests) == (drawn, chosen)
    assert_whole(requests, rows, drawn | chosen)
    for table in TABLES:
        assert len(rows_of(requests, table)) < 0.5 * len(rows[table])
    assert answers(requests, api) == before


def copies_left(requests: Requests) -> list[Any]:
    databases = [database_name(requests.client, requests.cluster), requests.clients.get().database]
    query = "SELECT name FROM system.tables WHERE database IN {of:Array(String)} AND match(name, '^kept_[0-9]')"
    return list(requests.client.query(query, parameters={"of": databases}).result_rows)


def test_two_processes_that_thin_a_day_at_the_same_time_come_to_the_rows_of_one(
    requests: Requests, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    before, rows = answers(requests, api), {table: rows_of(requests, table) for table in TABLES}
    monkeypatch.setattr(thin_requests, "KILLED_AFTER_S", 0)  # each takes the other for killed
    copy, results = thin_requests.copy_kept, []

    def copy_beside_another(*of: Any) -> None:
        monkeypatch.setattr(thin_requests, "copy_kept", copy)
        copy(*of)
        time.sleep(1.1)  # `now()` is of seconds
        results.append(step(requests))

    monkeypatch.setattr(thin_requests, "copy_kept", copy_beside_another)
    results.append(step(requests))
    assert results == [True, False]
    drawn, chosen = kept_ids(requests)
    assert_whole(requests, rows, drawn | chosen)
    assert len(rows_of(requests, "activity")) < 0.5 * len(rows["activity"])
    assert answers(requests, api) == before
    assert not copies_left(requests)


def test_rows_that_are_kept_go_at_the_age_of_others(requests: Requests) -> None:
    set_retention(requests.client, 1000)
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    thin(requests)
    ages = requests.client.query(
        f"SELECT table, dateDiff('day', toDate(partition), max(delete_ttl_info_min)) FROM system.parts WHERE active"
        f" AND database = currentDatabase() AND table IN {TABLES} AND partition = '{DAYS[0]}' GROUP BY table, partition"
    ).result_rows
    assert dict(ages) == dict.fromkeys(TABLES, 1000)


@ON_CLUSTERS
def test_who_waits_for_replicas_does_not_wait_for_merges(requests: Requests, clients: OnCluster) -> None:
    """Else builds would wait for them."""
    requests.come(1, first=0.1, days=0.1)
    requests.build()
    waits = [sql for sql in clients.statements if sql.startswith("SYSTEM SYNC REPLICA")]
    assert any("sample_changes" in sql for sql in waits)
    assert all(sql.endswith(" LIGHTWEIGHT") for sql in waits)


@ON_CLUSTERS
def test_all_hosts_of_a_cluster_have_what_is_kept_before_rows_go(requests: Requests, clients: OnCluster) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    clients.statements.clear()
    thin(requests)
    cluster, on = requests.cluster, f" ON CLUSTER '{requests.cluster.name}' "
    database = database_name(requests.client, cluster)
    of_copies = [sql for sql in clients.statements if re.search(r"\bkept_\d+_", sql)]
    kinds = [next(k for k in ("SYNC REPLICA", "REPLACE PARTITION", "TABLE", "INSERT") if k in sql) for sql in of_copies]
    assert kinds.count("SYNC REPLICA") == kinds.count("REPLACE PARTITION") == len(TABLES)
    assert list(dict.fromkeys(kinds)) == ["TABLE", "INSERT", "SYNC REPLICA", "REPLACE PARTITION"]
    for kind, sql in zip(kinds, of_copies, strict=True):
        assert (on in sql) == (kind != "INSERT" and (kind != "REPLACE PARTITION" or bool(cluster.local))), sql
        assert kind != "SYNC REPLICA" or f"{on}`{database}`.kept_" in sql


def test_a_thinning_that_was_killed_is_done_again_after_an_hour(requests: Requests) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    for minutes, expected in ((10, ["thinning"]), (70, ["thinning", "choosing", "thinning", "thinned"])):
        truncate(requests, "thinned_days")
        earlier = f"SELECT '{DAYS[0]}', 'thinning', now64(6) - INTERVAL {minutes} MINUTE"
        requests.client.command(f"INSERT INTO {of_this_host('thinned_days', requests.cluster)} {earlier}")
        thin(requests)
        assert states(requests) == {DAYS[0]: expected}


@pytest.mark.parametrize("days", [3, 0])
def test_sinks_thin_requests_unless_all_are_to_be_kept(
    requests: Requests, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the rollups, which do not wait for it."""
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    monkeypatch.setattr(periodic, "_PAUSE_S", 0.01)
    beside = beside_clickhouse(SinkSettings(request_days=days), requests.clients, lambda: time.time() + 2 * DAY)
    assert set(beside) == ({"rollups", "thinning"} if days else {"rollups"})
    if days:
        stop = threading.Event()
        thread = threading.Thread(target=beside["thinning"], args=(stop,))
        thread.start()
        wait_until(lambda: "thinned" in states(requests).get(DAYS[0], []))
        stop.set()
        thread.join()
    assert states(requests) == ({DAYS[0]: ["choosing", "thinning", "thinned"]} if days else {})
