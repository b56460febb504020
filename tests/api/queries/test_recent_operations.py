"""The operations of the last hours from what was summed up as rows were stored, where these are too many to read."""

import statistics
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from api.queries.database import Database
from api.queries.operations.operations import read_operations
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.client import Clients
from sinks.rollups.builder import Rollups
from sinks.rollups.changes import insert_settings, note_work_sql
from tests.api.queries.recent_store import SELECTORS, SERVICES, RecentStore
from tests.api.queries.request_store import in_order
from tests.api.queries.rollup_store import HOUR
from tests.data.tables import NO_SPAN, NO_TRACE

SAMPLED = (
    "sampled_cpu_ns",
    "sampled_cpu_low_ns",
    "sampled_cpu_high_ns",
    "previous_sampled_cpu_ns",
    "samples",
    "previous_samples",
)


@pytest.fixture
def store(engine: str, database: str, request: pytest.FixtureRequest) -> RecentStore:
    return RecentStore(Clients(engine, database=database), getattr(request, "param", 0))


def read(database: Database, selection: Selection, by: Sequence[str] = ()) -> list[dict[str, Any]]:
    return in_order(read_operations(database, selection, by).all)


def sampled(rows: list[dict[str, Any]]) -> list[int]:
    return [sum(row[name] for row in rows) for name in ("samples", "sampled_cpu_ns", "previous_sampled_cpu_ns")]


def without_samples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in SAMPLED} for row in rows]


@pytest.mark.parametrize("store", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))], indirect=True)
def test_all_is_as_if_rows_were_read(store: RecentStore) -> None:
    for _ in range(3):
        store.store(store.requests(100, seconds=2 * HOUR))
    for first, last in ((0, 60), (20, 40), (13, 47), (30, 31), (13, 117), (0, 120), (55, 130)):
        selection = store.selection(store.random.choice(SELECTORS), 60 * first, 60 * last)
        by = store.random.choice(((), ("service_version",)))
        answer = read(store.of_sums, selection, by)
        assert answer == read(store.of_rows, selection, by)
        assert sum(row["samples"] for row in answer) > 0


def test_the_variance_of_requests_is_that_of_their_values(store: RecentStore) -> None:
    rows = store.requests(200)
    store.store(rows)
    for database in (store.of_sums, store.of_rows):
        for row in (row for row in read_operations(database, store.selection()).all if row["operation"]):
            key = (row["service"], row["operation"])
            values = [one["thread_cpu_ns"] for one in rows if (one["service"], one["operation"]) == key]
            for what, number in (("cpu", row["measured"]), ("duration", row["requests"])):
                mean = row[f"request_{what}_ns"] / number
                found = row[f"request_{what}_squares"] / number - mean**2
                assert found == pytest.approx(statistics.pvariance(values), rel=1e-4)
            assert row["errors"] == sum(value % 3 == 2 for value in values)


def test_samples_whose_operation_was_not_known_are_unattributed(store: RecentStore) -> None:
    rows = store.requests(200)
    store.store(rows)
    store.store_samples(rows, 0.25, known=0.5)
    # Without a trace at first; a correction takes these back, and gives them to their traces.
    untraced = {"trace_id": NO_TRACE, "span_id": NO_SPAN, "known_operation": ""}
    store.insert("samples", [store.sample(one, 0.5) | untraced for one in rows[:120]])
    taken = [store.sample(one, -0.5) | untraced for one in rows[:100]]
    store.insert("samples", [*taken, *(store.sample(one, 0.5) for one in rows[:100])])
    answer, exact = read(store.of_sums, store.selection()), read(store.of_rows, store.selection())
    assert without_samples(answer) == without_samples(exact)
    assert sampled(answer) == sampled(exact)
    unattributed, least = (of_none(rows) for rows in (answer, exact))
    assert all(unattributed[service] > least[service] for service in SERVICES)


def of_none(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The sampled CPU of each service that belongs to no operation."""
    return {row["service"]: row["sampled_cpu_ns"] for row in rows if not row["operation"]}


def test_the_sums_of_samples_that_corrections_took_back_are_those_of_rows(store: RecentStore) -> None:
    rows = [one for one in store.requests(50) if one["operation"]]
    untraced = {"trace_id": NO_TRACE, "span_id": NO_SPAN, "known_operation": ""}
    store.insert("activity", rows)
    store.insert("samples", [store.sample(one, 0.5) | untraced for one in rows])
    taken = [store.sample(one, -0.5) | untraced for one in rows]
    store.insert("samples", [*taken, *(store.sample(one, 0.5) for one in rows)])
    assert read(store.of_sums, store.selection()) == read(store.of_rows, store.selection())


def test_what_has_rollups_is_read_from_them_to_the_minute(store: RecentStore) -> None:
    store.store(store.requests(300, seconds=2 * HOUR))
    rollups = Rollups(store.clients, operations_s=1e6)
    rollups.step(threading.Event(), store.start + HOUR + 70 * 60 + 1)
    for selector in SELECTORS:
        built = store.selection(selector, 40 * 60, 50 * 60)
        assert read(store.of_sums, built) == read(store.of_rows, built)
        both = store.selection(selector, 50 * 60, 80 * 60)
        assert read(store.of_sums, both) == read(store.of_rows, both)


def test_a_range_is_taken_in_whole_minutes(store: RecentStore) -> None:
    store.store(store.requests(300))
    odd, whole = store.selection("{}", 600.5, 1799.9), store.selection("{}", 600, 1800)
    exact = read(store.of_rows, whole)
    for database in (store.of_sums, store.of_rows):
        answer = read_operations(database, odd)
        assert answer.time_range == whole.time_range
        assert in_order(answer.all) == exact


def test_a_range_of_more_than_twelve_hours_begins_with_a_whole_hour(store: RecentStore) -> None:
    store.store(store.requests(300))
    begin, end = store.start * 10**9 - 12 * HOUR * 10**9, (store.start + HOUR) * 10**9
    for odd, whole in ((60, 0), (HOUR + 60, HOUR + 60)):
        for database in (store.of_sums, store.of_rows):
            answer = read_operations(database, store.selection("{}", odd - 12 * HOUR, HOUR))
            assert answer.time_range == TimeRange(begin + whole * 10**9, end)
            assert sum(row["requests"] for row in answer.all) == sum(
                row["requests"] for row in read(store.of_rows, store.selection())
            )


def test_until_now_the_last_ten_minutes_are_read_as_one(store: RecentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.store(store.requests(200, seconds=37 * 60 + 30))
    monkeypatch.setattr("api.queries.operations.recent.time.time_ns", lambda: (store.start + 37 * 60 + 30) * 10**9)
    # All of the last minutes, and more: the earlier ones are read at the start of the range.
    store.client.command(
        "ALTER TABLE recent_operations DELETE WHERE minutes = 1 AND start_time >= toDateTime({since:UInt32})"
        " SETTINGS mutations_sync = 1",
        parameters={"since": store.start + 10 * 60},
    )
    for first in (3, 10):
        until_now = store.selection("{}", 60 * first, 37 * 60 + 30)
        answer = in_order(read_operations(store.of_sums, until_now).all)
        assert without_samples(answer) == without_samples(read(store.of_rows, until_now))
        assert sum(row["requests"] for row in answer) > 0


def test_hours_are_read_as_one(store: RecentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the last one, until now."""
    store.store(store.requests(200, seconds=1.6 * HOUR))
    monkeypatch.setattr("api.queries.operations.recent.time.time_ns", lambda: int((store.start + 1.6 * HOUR) * 10**9))
    expected = [read(store.of_rows, store.selection("{}", first, 1.6 * HOUR)) for first in (0, HOUR)]
    store.client.command("ALTER TABLE recent_operations DELETE WHERE minutes < 60 SETTINGS mutations_sync = 1")
    for first, rows in zip((0, HOUR), expected, strict=True):
        answer = read_operations(store.of_sums, store.selection("{}", first, 1.6 * HOUR))
        assert in_order(answer.all) == rows
        assert sum(row["requests"] for row in rows) > 0


def test_rows_are_read_where_a_job_has_replaced_some(store: RecentStore) -> None:
    rows = store.requests(50)
    store.store(rows)
    span = store.start * 10**9, (store.start + 600) * 10**9
    store.client.command(note_work_sql("begun", *span, of_operations=True), settings=insert_settings())
    store.client.command("TRUNCATE TABLE activity")
    store.insert("activity", [one | {"thread_cpu_ns": one["thread_cpu_ns"] + 7} for one in rows])
    store.client.command(note_work_sql("ended", *span, of_operations=True), settings=insert_settings())
    selection = store.selection()
    assert read(store.of_sums, selection) == read(store.of_rows, selection)


def test_rows_are_read_of_times_that_are_not_kept(store: RecentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [one for one in store.requests(50) if one["operation"]]
    store.insert("activity", rows)
    store.store_samples(rows, 0.5, known=0)
    exact = read(store.of_rows, store.selection())
    assert read(store.of_sums, store.selection()) != exact
    monkeypatch.setattr("api.queries.operations.recent.RECENT_NS", 0)
    assert read(store.of_sums, store.selection()) == exact
