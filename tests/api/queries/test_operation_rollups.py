"""Answers about operations are those from rows, whatever was built, came late, was replaced or is gone."""

import random
import time
from collections.abc import Callable

import pytest

from api.queries.operations.operation_names import read_operation_names
from api.queries.operations.operations import read_operations
from api.queries.selection.selector import parse
from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import LEVELS, OPERATION_LEVELS, OPERATION_MINUTES
from icestream.ids import series_id
from sinks.rollups import builder, operation_tables
from sinks.rollups.builds import read_valid_builds
from tests.api.conftest import Api
from tests.api.queries.request_store import OPERATIONS, Requests, whole_minutes
from tests.api.queries.rollup_store import DAY, HOUR, LABELS, T0, select
from tests.data.tables import insert_series, to_datetime
from tests.sinks.clusters import Shards


@pytest.fixture
def requests(engine: str, database: str) -> Requests:
    return Requests(Clients(engine, database=database))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_sums_and_percentiles_are_those_of_rows_whatever_happens(
    requests: Requests, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an hour is built in several statements."""
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", (25, 7, operation_tables.SPANS_AT_ONCE)[seed])
    requests.random = random.Random(seed)
    requests.come(100)
    requests.build()
    requests.check_everything()
    unfinished: list[Callable[[], None]] = []
    for event in requests.random.sample(("late", "replace", "job is killed"), 3):
        if event == "late":
            requests.come(5)
        else:
            end = requests.begin_replace()
            requests.build()  # meanwhile
            unfinished.append(end)
            if event == "replace":
                unfinished.pop()()
        requests.check_everything()
    for end in unfinished:
        end()
    requests.build()
    requests.check_everything()
    found = read_operations(requests.database, select((), T0, T0 + 2 * DAY))
    assert [(part["level"], part["buckets"]) for part in found.rollups] == [("day", 2)]
    for _ in range(3):
        requests.check(requests.selection())


def test_six_hours_are_read_at_once_and_hours_before_and_after_them(requests: Requests) -> None:
    requests.come(200)
    requests.build()
    selection = select((), T0 + 5 * HOUR, T0 + 20 * HOUR)
    requests.check(selection)
    requests.come(30, first=0.3, days=0.1)
    levels = {part["level"]: part["buckets"] for part in read_operations(requests.database, selection).rollups}
    assert levels.get("6 hours", 0) < 2
    requests.check(selection)
    requests.build()
    found = read_operations(requests.database, selection)
    assert [(part["level"], part["buckets"]) for part in found.rollups] == [("6 hours", 2), ("hour", 3)]
    requests.client.command(
        f"ALTER TABLE operation_hours DELETE WHERE start_time BETWEEN {T0 + 6 * HOUR} AND {T0 + 17 * HOUR}"
        " SETTINGS mutations_sync = 1"
    )
    requests.check(selection)


def test_rows_of_all_shards_are_one_answer(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_tables, "SPANS_AT_ONCE", 40)
    shards = Shards(engine, "operations_of_shards")
    requests = Requests(shards, shards.cluster)
    requests.come(60, first=0, days=0.1)
    requests.build()
    requests.check(select((), T0, T0 + DAY))
    requests.check(select(parse('{service="cart"}'), T0, T0 + DAY))
    assert read_operations(requests.database, select((), T0, T0 + DAY)).rollups[0]["level"] == "day"
    assert read_operation_names(requests.database, (), None, "", 100) == sorted(OPERATIONS)


def test_operations_stay_when_rows_are_gone(requests: Requests, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 14)
    requests.come(200)
    requests.build()
    selections = list(whole_minutes(random.Random(3)))
    expected = [requests.answer_of_rows(selection) for selection in selections]
    requests.build(time.time() + 2 * DAY)
    for table in ("activity", "spans", "entry_spans", "span_operations"):
        requests.client.command(f"TRUNCATE TABLE {table}")
    assert requests.client.query("SELECT count() FROM samples").result_rows == [(0,)]
    assert [requests.answer(selection) for selection in selections] == expected
    answer = api.json("/api/v1/operations", start=str(T0 + 60), end=str(T0 + 3 * HOUR + 60))
    parts = [(part["level"], part["start"][11:16], part["end"][11:16]) for part in answer["rollups"]]
    assert parts == [("hour", "01:00", "03:00"), ("minute", "00:00", "04:00")]
    # Rollups by minute are kept for a shorter time: then whole hours are read.
    requests.client.command("TRUNCATE TABLE operation_minutes")
    requests.client.command("DELETE FROM rollup_builds WHERE level = 'operation minute'")
    hours = read_operations(requests.database, select((), T0 + HOUR + 60, T0 + 2 * HOUR + 60))
    assert [(part["level"], part["buckets"]) for part in hours.rollups] == [("hour", 2)]


def test_only_rollups_of_operations_are_built_again_for_late_requests(requests: Requests) -> None:
    """From the hour in which a request began to the hour after its end."""
    requests.come(20, first=0, days=0.1)
    requests.build()
    begun = {level: valid(requests, level) for level in (*LEVELS, *OPERATION_LEVELS)}
    span = {"trace_id": b"a" * 16, "span_id": b"a" * 8, "name": "GET /late", "operation": "GET /late"}
    times = {"start_time": to_datetime(T0 + 5.5 * HOUR), "end_time": to_datetime(T0 + 7.1 * HOUR)}
    requests.bring("spans", [span | times | {"service": "cart", "host_id": "a"}])
    for level in LEVELS:
        assert valid(requests, level) == begun[level]
    gone = {hour for hour in begun[OPERATION_MINUTES] if hour not in valid(requests, OPERATION_MINUTES)}
    assert gone == {T0 + hour * HOUR for hour in (5, 6, 7, 8)}
    requests.check_everything()


def test_what_a_task_does_in_the_next_hour_counts_for_its_request_also_when_it_comes_late(requests: Requests) -> None:
    of_request = {"trace_id": b"a" * 16, "service": "cart", "host_id": "a", "operation": "GET /"}
    began, ended = (to_datetime(T0 + DAY - before) for before in (2, 1))
    times = {"start_time": began, "end_time": ended}
    interval = {"span_id": b"a" * 8, "entry_span_id": b"a" * 8, "duration_ns": 1000, "thread_cpu_ns": 1000}
    requests.bring("spans", [of_request | times | {"span_id": b"a" * 8, "name": "GET /"}])
    requests.bring("activity", [of_request | interval | {"start_time": began}])
    requests.build()
    before = valid(requests, OPERATION_MINUTES)
    requests.bring("activity", [of_request | interval | {"start_time": to_datetime(T0 + DAY + 0.8 * HOUR)}])
    gone = before.keys() - valid(requests, OPERATION_MINUTES).keys()
    assert gone == {T0 + 23 * HOUR}
    requests.build()
    (row,) = requests.answer(select((), T0, T0 + 2 * DAY))
    assert (row["requests"], row["mean_cpu_ns"], row["thread_cpu_ns"]) == (1, 2000, 2000)
    assert read_operations(requests.database, select((), T0, T0 + 2 * DAY)).rollups[0]["level"] == "day"


def test_a_service_has_the_same_operations_from_rollups_as_from_rows(requests: Requests) -> None:
    """Also where its spans and its activity name it differently, and where a sample lies in a span of another one."""
    of_request = {"trace_id": b"a" * 16, "host_id": "a", "operation": "GET /"}
    at = to_datetime(T0 + HOUR)
    span = {"span_id": b"a" * 8, "name": "GET /", "start_time": at, "end_time": to_datetime(T0 + HOUR + 1)}
    interval = {"span_id": b"a" * 8, "entry_span_id": b"a" * 8, "duration_ns": 1000, "thread_cpu_ns": 1000}
    sample = {"trace_id": b"a" * 16, "span_id": b"a" * 8, "time": at, "count": 1, "value": 10}
    requests.bring("spans", [of_request | span | {"service": "cart"}])
    requests.bring("activity", [of_request | interval | {"service": "checkout", "start_time": at}])
    requests.bring("samples", [sample | {"service": "cart", "host_id": "a", "series_id": series_id(LABELS[0].items())}])
    selection = select(parse('{service="cart"}'), T0, T0 + DAY)
    of_rows = requests.answer(selection)
    requests.build()
    assert read_operations(requests.database, selection).rollups[0]["level"] == "day"
    assert requests.answer(selection) == of_rows
    (row,) = of_rows
    assert (row["operation"], row["requests"], row["mean_cpu_ns"], row["sampled_cpu_ns"]) == ("GET /", 1, 1000, 10)


def test_labels_that_name_operations_are_summed_up_also_where_nothing_was_traced(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 14)
    named = [{"service": "cart", "host": "a", "span_name": name} for name in ("render", "GET /a")]
    insert_series(requests.client, named, to_datetime(T0))
    sample = {"service": "cart", "host_id": "a", "count": 1, "value": 10}
    requests.bring("samples", [
        sample | {"time": to_datetime(T0 + hour * HOUR + 60), "series_id": series_id(labels.items())}
        for labels, hours in ((LABELS[0], 2), (named[0], 3), (named[1], 4)) for hour in range(hours)
    ])  # fmt: skip
    selection = select(parse('{service="cart"}'), T0, T0 + DAY)
    of_rows = requests.answer(selection)
    assert [(row["operation"], row["sampled_cpu_ns"]) for row in of_rows] == [("", 20), ("GET /a", 40), ("render", 30)]
    requests.build()
    requests.build(time.time() + 2 * DAY)
    assert requests.client.query("SELECT count() FROM samples").result_rows == [(0,)]
    assert requests.answer(selection) == of_rows
    assert read_operations(requests.database, selection).rollups[0]["level"] == "day"


def valid(requests: Requests, level: builder.Level) -> dict[int, int]:
    return read_valid_builds(requests.client, level, T0, T0 + 2 * DAY)
