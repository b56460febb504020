"""Rollups of what the sink stores: also of batches that come after their hour was built."""

import threading
import time
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse import Clients
from icestream.rollups import DAY_S, HOURS, OPERATION_HOURS, Level
from icestream.topics import ACTIVITY, SAMPLES
from sinks import rollups
from sinks.clickhouse import ClickHouseSink
from sinks.rollup_builds import read_valid_builds
from sinks.rollup_changes import REQUESTS_QUIET_S, note_work_sql
from sinks.rollups import Bucket, Rollups, together
from tests.sinks.messages import START_MS, activity_batch, make_range, sample_batch, tables

HOUR_S = START_MS // 3_600_000 * 3600


def store(clients: Clients, sequence: int, **more: Any) -> None:
    batch = tables(SAMPLES, sample_batch(sequence))
    ClickHouseSink(clients).write(make_range(SAMPLES, [batch], first=sequence, **more))


def build(clients: Clients) -> None:
    Rollups(clients).step(threading.Event(), int(time.time()) + 2 * REQUESTS_QUIET_S)


def store_activity(clients: Clients, sequence: int, **more: Any) -> None:
    batch = tables(ACTIVITY, activity_batch(sequence))
    ClickHouseSink(clients).write(make_range(ACTIVITY, [batch], first=sequence, **more))


def valid(client: Client, level: Level = HOURS) -> list[int]:
    return list(read_valid_builds(client, level, HOUR_S, HOUR_S + 1))


def of_requests(client: Client) -> tuple[int, ...]:
    """Requests, nanoseconds of thread CPU, and those per request that the rollups of the hour have."""
    rows = client.query(
        "SELECT sum(requests), sum(thread_cpu_ns), sum(request_cpu_ns), round(quantilesDDMerge(0.01, 0.5, 0.95, 0.99)"
        "(cpu)[1] / 100000) FROM operation_hours WHERE build IN {builds:Array(UInt64)}",
        parameters={"builds": list(read_valid_builds(client, OPERATION_HOURS, HOUR_S, HOUR_S + 1).values())},
    ).result_rows
    return tuple(int(number) for number in rows[0])


def sums(client: Client) -> list[int]:
    """Of the hour: counts in samples, and in each table of its rollups that counts."""
    found = [int(client.query("SELECT sum(count) FROM samples").result_rows[0][0])]
    for table in ("service_minutes", "series_hours", "service_stack_hours", "series_stack_days", "service_stack_days"):
        latest = f"build IN (SELECT build FROM {table} ORDER BY build DESC LIMIT 1)"
        found.append(int(client.query(f"SELECT sum(count) FROM {table} WHERE {latest}").result_rows[0][0]))
    return found


def test_every_table_has_the_sums_of_samples_and_a_late_batch_is_noticed(clients: Clients, client: Client) -> None:
    store(clients, 1)
    assert client.query("SELECT count() FROM sample_changes").result_rows == [(0,)]  # nothing was built
    build(clients)
    assert valid(client) == [HOUR_S]
    assert sums(client) == [5] * 6
    store(clients, 2)
    assert valid(client) == []
    build(clients)
    assert valid(client) == [HOUR_S]
    assert sums(client) == [10] * 6


def test_a_change_is_noted_when_the_sink_dies_before_it_says_so(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(clients, 1)
    build(clients)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sinks.clickhouse.note_added", die)
    with pytest.raises(KeyboardInterrupt):
        store(clients, 2)
    monkeypatch.undo()
    store(clients, 2, retried=True)
    assert valid(client) == []
    build(clients)
    assert sums(client) == [10] * 6


def test_late_activity_counts_once_in_rollups_of_operations_and_leaves_the_others_alone(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(clients, 1)
    store_activity(clients, 1)
    build(clients)
    assert (valid(client), valid(client, OPERATION_HOURS)) == ([HOUR_S], [HOUR_S])
    assert of_requests(client) == (1, 2_700_000, 2_700_000, 27)
    store_activity(clients, 1, nonce="1" * 12)  # again, from another sender
    assert valid(client, OPERATION_HOURS) == [HOUR_S]

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sinks.clickhouse.note_requests", die)
    with pytest.raises(KeyboardInterrupt):
        store_activity(clients, 2)
    monkeypatch.undo()
    store_activity(clients, 2, retried=True)
    assert (valid(client), valid(client, OPERATION_HOURS)) == ([HOUR_S], [])
    build(clients)
    assert of_requests(client) == (2, 5_400_000, 5_400_000, 27)


def test_a_sink_notes_an_hour_to_which_activity_comes_all_the_time_once_in_a_while(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_activity(clients, 1)
    build(clients)
    sink, changes = ClickHouseSink(clients), "SELECT countIf(toUnixTimestamp(start_time) = %d) FROM sample_changes"
    for sequence, noted in ((2, 1), (3, 1), (4, 2)):
        sink.write(make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(sequence))], first=sequence))
        assert client.query(changes % HOUR_S).result_rows == [(noted,)]
        monkeypatch.setattr("sinks.rollup_changes.NOTED_S", 3600 if sequence == 2 else 0)
    Rollups(clients).step(threading.Event(), int(time.time()) + REQUESTS_QUIET_S // 2)
    assert valid(client, OPERATION_HOURS) == []  # others may follow that are not noted
    build(clients)
    assert of_requests(client)[0] == 4


def test_nothing_is_built_again_without_a_change(clients: Clients, client: Client) -> None:
    store(clients, 1)
    build(clients)
    builds = client.query("SELECT * FROM rollup_builds ORDER BY ALL").result_rows
    build(clients)
    assert client.query("SELECT * FROM rollup_builds ORDER BY ALL").result_rows == builds


def test_an_hour_is_built_after_it_ended_and_batches_of_it_are_stored(clients: Clients, client: Client) -> None:
    store(clients, 1)
    Rollups(clients).step(threading.Event(), HOUR_S + 3600 + 60)
    assert valid(client) == []
    Rollups(clients).step(threading.Event(), HOUR_S + 3600 + 1200)
    assert valid(client) == [HOUR_S]


def test_an_old_day_is_final_with_all_that_a_backlog_brings_not_with_its_first_rows(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder comes between them, in tables where nothing was built before."""
    monkeypatch.setattr(rollups, "sample_days", lambda client, cluster: 2)
    store(clients, 1)
    build(clients)
    store(clients, 2)
    build(clients)
    Rollups(clients).step(threading.Event(), int(time.time()) + 2 * DAY_S)
    assert sums(client) == [0] + [10] * 5


def test_hours_of_a_day_are_built_together_up_to_so_many_samples() -> None:
    day = HOUR_S // DAY_S * DAY_S
    buckets = [Bucket(HOURS, day + hour * 3600) for hour in range(47, -1, -1)]
    few, many = {day: 1000, day + DAY_S: 1000}, {day: 24 * 10**7, day + DAY_S: 24 * 10**9}
    assert [len(group) for group in together(buckets, few)] == [24, 24]
    assert [len(group) for group in together(buckets, many)] == [1] * 24 + [2] * 12
    assert [bucket for group in together(buckets, many) for bucket in group] == buckets


def test_hours_that_are_built_together_leave_out_one_on_which_a_job_works(clients: Clients, client: Client) -> None:
    batches = [tables(SAMPLES, sample_batch(1 + hour * 720)) for hour in range(4)]
    ClickHouseSink(clients).write(make_range(SAMPLES, batches))
    client.command(note_work_sql("begun", (HOUR_S + 3600) * 10**9, (HOUR_S + 4200) * 10**9))
    hours = [HOUR_S + hour * 3600 for hour in range(4)]
    assert not rollups.build(client, *(Bucket(HOURS, hour) for hour in hours))
    found = client.query(
        "SELECT toUnixTimestamp(start_time), build, sum(count) FROM series_hours GROUP BY ALL ORDER BY 1"
    )
    assert [row[::2] for row in found.result_rows] == [(hour, 5) for hour in hours if hour != hours[1]]
    assert len({row[1] for row in found.result_rows}) == 3  # each hour can be built again without the others
    client.command(note_work_sql("ended", (HOUR_S + 3600) * 10**9, (HOUR_S + 4200) * 10**9))
    assert rollups.build(client, Bucket(HOURS, hours[1]))
    assert list(read_valid_builds(client, HOURS, hours[0], hours[-1] + 1)) == hours
