"""Days of which only some requests are kept: what is asked of operations and samples is answered as before."""

import random
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from api.terminal.draw_requests import draw_trace, draw_traces
from icestream.clickhouse import Clients
from icestream.thinning import IS_SAMPLED
from sinks import thin_requests
from sinks.rollup_changes import note_work_sql
from sinks.rollups import Rollups
from tests.api.conftest import Api
from tests.api.queries.request_store import OPERATIONS, Requests, Rows, whole_minutes
from tests.api.queries.rollup_store import DAY, HOUR, T0
from tests.data.tables import NO_SPAN, to_datetime
from tests.waiting import PATIENCE_S, wait_until

DAYS = [datetime.fromtimestamp(T0 + day * DAY, timezone.utc).date() for day in range(2)]
RANGE = {"start": str(T0), "end": str(T0 + 2 * DAY)}
TABLES = ("activity", "entry_spans", "spans", "span_operations")


@pytest.fixture
def requests(engine: str, database: str, monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Operations with more than 20 requests in a day are thinned. One request in five has samples."""
    monkeypatch.setattr(thin_requests, "WHOLE_REQUESTS", 20)
    store = Requests(Clients(engine, database=database))
    make = store.request

    def request(at: float) -> Rows:
        rows = make(at)
        return rows if store.count % 5 == 0 else {table: rows[table] for table in rows if table != "samples"}

    monkeypatch.setattr(store, "request", request)
    return store


def thin(requests: Requests, now: float = 0) -> None:
    """Thins what is due, as if the last change was two days ago."""
    left = "SELECT count() FROM system.mutations WHERE NOT is_done AND database = currentDatabase()"
    while thin_requests.thin_requests(requests.client, int(now or time.time() + 2 * DAY), 3, threading.Event()):
        wait_until(lambda: requests.client.query(left).result_rows == [(0,)])


def states(requests: Requests) -> dict[Any, list[str]]:
    """The states that each day had, one after the other."""
    rows = requests.client.query("SELECT day, toString(state) FROM thinned_days ORDER BY noted_time").result_rows
    found: dict[Any, list[str]] = {}
    for day, state in rows:
        of_day = found.setdefault(day, [])
        if of_day[-1:] != [state]:
            of_day.append(state)
    return found


def rows_of(requests: Requests, table: str) -> list[tuple[Any, ...]]:
    final = "" if table == "activity" else "FINAL"
    return [tuple(row) for row in requests.client.query(f"SELECT * FROM {table} {final} ORDER BY ALL").result_rows]


def ids(requests: Requests, select: str) -> set[bytes]:
    return {row[0] for row in requests.client.query(select).result_rows}


def answers(requests: Requests, api: Api) -> list[Any]:
    """What is asked of operations and of samples."""
    asked: list[Any] = [requests.answer(selection) for selection in whole_minutes(random.Random(3))]
    for operation in OPERATIONS:
        selector = f'{{operation="{operation}"}}'
        asked.append(api.json("/api/v1/timeline", selector=selector, sum_by="service", step="3600s", **RANGE))
    asked.append(api.json("/api/v1/timeline", sum_by="operation", step="600s", **RANGE))
    asked.append(api.json("/api/v1/timeline", selector='{span_name="a name"}', step="3600s", **RANGE))
    asked.append(api.json("/api/v1/labels/operation/values", **RANGE))
    return asked


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

    drawn = set().union(*(ids(requests, f"SELECT trace_id FROM {t} WHERE {IS_SAMPLED}") for t in ("activity", "spans")))
    chosen = ids(requests, "SELECT trace_id FROM kept_traces")
    for table, rows in of_tables.items():
        after = rows_of(requests, table)
        assert 0 < len(after) < 0.5 * len(rows), table
        assert set(after) <= set(rows)
        for kept in (drawn, chosen):
            whole = [row for row in rows if kept & set(row)]
            assert [row for row in after if kept & set(row)] == whole
            assert whole or kept is drawn
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
        " LEFT JOIN activity AS a ON a.trace_id = e.trace_id AND a.entry_span_id = e.span_id GROUP BY ALL"
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
    monkeypatch.setattr(thin_requests, "WHOLE_REQUESTS", 10_000)
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


def test_a_day_that_changes_is_thinned_again_and_its_sums_stay(requests: Requests, api: Api) -> None:
    """A job brings back the rows of all requests."""
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    before = answers(requests, api)
    rows = {
        table: list(requests.client.query(f"SELECT * FROM {table}").named_results()) for table in ("activity", "spans")
    }
    thin(requests)
    few = {table: rows_of(requests, table) for table in TABLES}
    thin(requests)
    assert {day: len(each) for day, each in states(requests).items()} == {DAYS[0]: 3}  # not without a change
    time.sleep(1.1)  # changes are noted in seconds
    requests.client.command("TRUNCATE TABLE activity")
    for table, of_table in rows.items():
        requests.bring(table, of_table)
    requests.build()
    assert answers(requests, api) == before
    thin(requests, time.time() + 60)  # the change is not a day old
    assert len(rows_of(requests, "activity")) > len(few["activity"])
    thin(requests)
    assert states(requests) == {DAYS[0]: ["choosing", "thinning", "thinned"] * 2}
    assert {table: rows_of(requests, table) for table in TABLES} == few
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
    rows = rows_of(requests, "activity")
    choose = thin_requests._choose_traces

    def late(*of: Any) -> None:
        choose(*of)
        requests.client.command(note_work_sql("begun", T0 * 10**9, (T0 + HOUR) * 10**9, of_operations=True))

    monkeypatch.setattr(thin_requests, "_choose_traces", late)
    thin(requests)
    monkeypatch.setattr(thin_requests, "_choose_traces", choose)
    assert states(requests) == {DAYS[0]: ["choosing"]}
    requests.client.command("TRUNCATE TABLE thinned_days")
    thin(requests, time.time() + 10 * DAY)  # the job goes on
    assert states(requests) == {}
    assert rows_of(requests, "activity") == rows
    requests.client.command(note_work_sql("ended", T0 * 10**9, (T0 + HOUR) * 10**9, of_operations=True))
    thin(requests, time.time() + 10 * DAY)
    assert states(requests) == {DAYS[0]: ["choosing", "thinning", "thinned"]}
    assert len(rows_of(requests, "activity")) < len(rows)


def test_nothing_more_is_thinned_while_rows_cannot_be_deleted(
    requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    requests.come(100, first=0.1, days=0.1)
    requests.build()
    requests.client.command(
        "ALTER TABLE activity DELETE WHERE throwIf(pid < 1000000) = 0", settings={"mutations_sync": 0}
    )
    wait_until(lambda: not thin_requests._mutations_ended(requests.client) and "cannot be deleted" in caplog.text)
    assert not thin_requests.thin_requests(requests.client, int(time.time() + 2 * DAY), 3, threading.Event())
    assert states(requests) == {}
    requests.client.command("KILL MUTATION WHERE NOT is_done AND database = currentDatabase() SYNC")
    thin(requests)
    assert states(requests) != {}


def test_a_day_is_not_thinned_before_the_rollups_of_its_neighbours_are_there(requests: Requests) -> None:
    requests.come(100, first=0.1, days=0.1)
    requests.build()
    requests.come(5, first=1.1, days=0.1)
    thin(requests)
    assert states(requests) == {}
    requests.build()
    thin(requests)
    assert set(states(requests)) == set(DAYS)


def test_a_thinning_that_was_killed_is_done_again_after_an_hour(requests: Requests) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    for minutes, expected in ((10, ["thinning"]), (70, ["thinning", "choosing", "thinning", "thinned"])):
        requests.client.command("TRUNCATE TABLE thinned_days")
        requests.client.command(
            f"INSERT INTO thinned_days SELECT '{DAYS[0]}', 'thinning', now64(6) - INTERVAL {minutes} MINUTE"
        )
        thin(requests)
        assert states(requests) == {DAYS[0]: expected}


@pytest.mark.parametrize("days", [3, 0])
def test_sinks_thin_requests_unless_all_are_to_be_kept(requests: Requests, days: int) -> None:
    requests.come(200, first=0.1, days=0.1)
    requests.build()
    Rollups(requests.clients, PATIENCE_S, days).step(threading.Event(), int(time.time() + 2 * DAY))
    assert states(requests) == ({DAYS[0]: ["choosing", "thinning", "thinned"]} if days else {})
