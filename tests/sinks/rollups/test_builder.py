"""Rollups of what the sink stores: also of batches that come after their hour was built."""

import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import DAY_S, HOURS, OPERATION_DAYS, OPERATION_HOURS, OPERATION_MINUTES, Level
from icestream.files.free_space import DiskFullError
from icestream.topics import ACTIVITY, SAMPLES
from sinks.clickhouse.cluster import Cluster
from sinks.clickhouse.disk_room import DiskRoom
from sinks.clickhouse.sink import ClickHouseSink
from sinks.rollups import builder
from sinks.rollups.buckets import Bucket, grouped
from sinks.rollups.builder import Rollups
from sinks.rollups.builds import read_valid_builds
from sinks.rollups.changes import REQUESTS_QUIET_S, Changes, hours_of_spans, note_work_sql
from tests.data.tables import insert_rows, to_datetime
from tests.sinks.messages import START_MS, activity_batch, make_range, sample_batch, tables
from tests.waiting import PATIENCE_S

HOUR_S = START_MS // 3_600_000 * 3600


def store(clients: Clients, sequence: int, **more: Any) -> None:
    batch = tables(SAMPLES, sample_batch(sequence))
    ClickHouseSink(clients).write(make_range(SAMPLES, [batch], first=sequence, **more))


def build(clients: Clients) -> None:
    Rollups(clients, PATIENCE_S).step(threading.Event(), int(time.time()) + 2 * REQUESTS_QUIET_S)


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
    """The counts of the hour in samples, and in each table of its rollups that counts."""
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

    monkeypatch.setattr("sinks.clickhouse.sink.note_added", die)
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

    monkeypatch.setattr("sinks.clickhouse.sink.note_requests", die)
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
        monkeypatch.setattr("sinks.rollups.changes.NOTED_S", 3600 if sequence == 2 else 0)
    Rollups(clients, PATIENCE_S).step(threading.Event(), int(time.time()) + REQUESTS_QUIET_S // 2)
    assert valid(client, OPERATION_HOURS) == []  # others may follow that are not noted
    build(clients)
    assert of_requests(client)[0] == 4


def test_a_sink_notes_an_hour_again_after_a_clock_has_jumped(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock stands still while a machine is suspended; the wall clock may be set to before."""
    store_activity(clients, 1)
    build(clients)
    sink, changes = ClickHouseSink(clients), "SELECT countIf(toUnixTimestamp(start_time) = %d) FROM sample_changes"
    wall = time.time()
    for sequence, now, noted in ((2, wall, 1), (3, wall + 60, 1), (4, wall + 3600, 2), (5, wall + 3540, 3)):
        clocks = SimpleNamespace(monotonic=lambda: 1000.0, time=partial(float, now))
        monkeypatch.setattr("sinks.rollups.changes.time", clocks)
        sink.write(make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(sequence))], first=sequence))
        assert client.query(changes % HOUR_S).result_rows == [(noted,)]


def test_a_span_that_ends_before_it_starts_changes_the_hour_of_its_start() -> None:
    assert hours_of_spans([[100, 101], [200, 190]]) == {100, 101, 102, 200, 201}


def test_an_hour_of_operations_that_cannot_be_built_leaves_the_others_and_all_samples_alone(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = [HOUR_S + hour * 3600 for hour in range(4)]
    store_hours(clients, 4, 24)
    # What is newer is built first: the builder goes on with the hours of the day before.
    build_one, bad = builder.build, {Bucket(OPERATION_MINUTES, start) for start in (hours[2], HOUR_S + DAY_S)}

    def build_others(client: Client, *buckets: Bucket, **named: Any) -> bool:
        if bad.intersection(buckets):
            client.command("SELECT throwIf(1)")
        return build_one(client, *buckets, **named)

    monkeypatch.setattr(builder, "build", build_others)
    build(clients)
    client = clients.get()  # another one: that of the error is closed
    for level, expected in (
        (HOURS, hours),
        *((level, hours[:2] + hours[3:]) for level in (OPERATION_MINUTES, OPERATION_HOURS)),
    ):
        assert list(read_valid_builds(client, level, hours[0], hours[-1] + 1)) == expected
    monkeypatch.undo()
    build(clients)
    assert list(read_valid_builds(client, OPERATION_HOURS, hours[0], hours[-1] + 1)) == hours


def test_a_backlog_of_operations_is_left_for_the_next_steps(clients: Clients, client: Client) -> None:
    """But for hours without rows, which are built together."""
    store_hours(clients, 3)
    day = HOUR_S // DAY_S * DAY_S
    for built in (21, 22):
        Rollups(clients, operations_s=0).step(threading.Event(), int(time.time()) + 2 * REQUESTS_QUIET_S)
        for level, expected in ((HOURS, 24), (OPERATION_MINUTES, built), (OPERATION_HOURS, built)):
            assert len(read_valid_builds(client, level, day, day + DAY_S)) == expected


def test_an_hour_of_operations_does_not_depend_on_what_is_built_in_the_same_step(
    clients: Clients, client: Client
) -> None:
    """A span has another operation in the second hour."""
    span = {"trace_id": b"a" * 16, "span_id": b"a" * 8, "entry_span_id": b"a" * 8, "service": "checkout"}
    for hour, operation in enumerate(("GET /", "GET /b")):
        at = {"start_time": to_datetime(HOUR_S + hour * 3600 + 60), "operation": operation}
        insert_rows(client, "activity", [span | at | {"duration_ns": 1000, "thread_cpu_ns": 1000}])
        sample = {"time": to_datetime(HOUR_S + hour * 3600 + 60), "count": 1, "value": 10, "service": "checkout"}
        insert_rows(client, "samples", [sample | {"trace_id": b"a" * 16, "span_id": b"a" * 8}])
    build(clients)
    together = sampled_operations(client)
    client.command("TRUNCATE TABLE rollup_builds")
    client.command("TRUNCATE TABLE operation_minutes")
    for hour in (0, 3600):
        assert builder.build(client, Bucket(OPERATION_MINUTES, HOUR_S + hour))
    assert together == sampled_operations(client) == [(HOUR_S + 60, "GET /"), (HOUR_S + 3660, "GET /b")]


def test_an_hour_of_operations_that_a_job_has_left_is_built_before_its_rows_go(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(clients, 1)
    store_activity(clients, 1)
    build(clients)
    client.command(note_work_sql("begun", HOUR_S * 10**9, (HOUR_S + 600) * 10**9, of_operations=True))
    build(clients)
    assert valid(client, OPERATION_HOURS) == []
    now = (int(time.time()) // DAY_S + 3) * DAY_S + 12 * 3600  # at noon: which rows may go depends on the time of day
    keep_rows(monkeypatch, (now - HOUR_S) // DAY_S + 2)
    Rollups(clients, PATIENCE_S).step(threading.Event(), now)
    assert valid(client, OPERATION_HOURS) == [HOUR_S]
    assert valid(client, OPERATION_DAYS) == [HOUR_S // DAY_S * DAY_S]


def test_a_day_of_operations_is_built_without_an_hour_that_could_not_be_built_once_rows_are_gone(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_hours(clients, 3)
    build_one, bad = builder.build, Bucket(OPERATION_MINUTES, HOUR_S + 3600)
    with monkeypatch.context() as patch:
        patch.setattr(builder, "build", lambda client, *of, **named: bad not in of and build_one(client, *of, **named))
        build(clients)
    assert valid(client, OPERATION_DAYS) == []
    for table in ("samples", "activity", "spans", "entry_spans", "span_operations"):
        client.command(f"TRUNCATE TABLE {table}")
    now = int(time.time()) + 2 * DAY_S
    keep_rows(monkeypatch, (now - HOUR_S) // DAY_S - 4)
    Rollups(clients, PATIENCE_S).step(threading.Event(), now)
    assert valid(client, OPERATION_DAYS) == [HOUR_S // DAY_S * DAY_S]
    assert client.query("SELECT sum(thread_cpu_ns) FROM operation_days").result_rows == [(2 * 2_700_000,)]


def keep_rows(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Rows are kept for so many days, and rollups for ever."""
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: days)
    monkeypatch.setattr(builder, "kept_days", lambda client, table, *_, **named: days if table == "activity" else 0)


def store_hours(clients: Clients, hours: int, *more: int) -> None:
    """Samples and activity of so many hours, and of others, all counted from the first one."""
    of_hours = [1 + hour * 720 for hour in (*range(hours), *more)]
    sink = ClickHouseSink(clients)
    sink.write(make_range(SAMPLES, [tables(SAMPLES, sample_batch(sequence)) for sequence in of_hours]))
    sink.write(make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(sequence)) for sequence in of_hours]))


def sampled_operations(client: Client) -> list[Any]:
    rows = client.query(
        "SELECT toUnixTimestamp(start_time), operation FROM operation_minutes WHERE value > 0 ORDER BY ALL"
    ).result_rows
    return [tuple(row) for row in rows]


def test_nothing_is_built_again_without_a_change(clients: Clients, client: Client) -> None:
    store(clients, 1)
    build(clients)
    builds = client.query("SELECT * FROM rollup_builds ORDER BY ALL").result_rows
    build(clients)
    assert client.query("SELECT * FROM rollup_builds ORDER BY ALL").result_rows == builds


def test_an_hour_is_built_after_it_ended_and_batches_of_it_are_stored(clients: Clients, client: Client) -> None:
    store(clients, 1)
    Rollups(clients, PATIENCE_S).step(threading.Event(), HOUR_S + 3600 + 60)
    assert valid(client) == []
    Rollups(clients, PATIENCE_S).step(threading.Event(), HOUR_S + 3600 + 1200)
    assert valid(client) == [HOUR_S]


def test_an_old_day_is_final_with_all_that_a_backlog_brings_not_with_its_first_rows(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder comes between them, in tables where nothing was built before."""
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 2)
    store(clients, 1)
    build(clients)
    store(clients, 2)
    build(clients)
    Rollups(clients, PATIENCE_S).step(threading.Event(), int(time.time()) + 2 * DAY_S)
    assert sums(client) == [0] + [10] * 5


def test_hours_of_a_day_are_built_together_up_to_so_many_samples() -> None:
    day = HOUR_S // DAY_S * DAY_S
    buckets = [Bucket(HOURS, day + hour * 3600) for hour in range(47, -1, -1)]
    few, many = {day: 1000, day + DAY_S: 1000}, {day: 24 * 10**7, day + DAY_S: 24 * 10**9}
    assert [len(group) for group in grouped(buckets, few)] == [24, 24]
    assert [len(group) for group in grouped(buckets, many)] == [1] * 24 + [2] * 12
    assert [bucket for group in grouped(buckets, many) for bucket in group] == buckets


def test_hours_that_are_built_together_leave_out_one_on_which_a_job_works(clients: Clients, client: Client) -> None:
    batches = [tables(SAMPLES, sample_batch(1 + hour * 720)) for hour in range(4)]
    ClickHouseSink(clients).write(make_range(SAMPLES, batches))
    client.command(note_work_sql("begun", (HOUR_S + 3600) * 10**9, (HOUR_S + 4200) * 10**9))
    hours = [HOUR_S + hour * 3600 for hour in range(4)]
    assert not builder.build(client, *(Bucket(HOURS, hour) for hour in hours))
    found = client.query(
        "SELECT toUnixTimestamp(start_time), build, sum(count) FROM series_hours GROUP BY ALL ORDER BY 1"
    )
    assert [row[::2] for row in found.result_rows] == [(hour, 5) for hour in hours if hour != hours[1]]
    assert len({row[1] for row in found.result_rows}) == 3  # each hour can be built again without the others
    client.command(note_work_sql("ended", (HOUR_S + 3600) * 10**9, (HOUR_S + 4200) * 10**9))
    assert builder.build(client, Bucket(HOURS, hours[1]))
    assert list(read_valid_builds(client, HOURS, hours[0], hours[-1] + 1)) == hours


def test_a_build_reads_changes_before_it_waits_for_the_rows_that_they_are_about(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a change that comes to a replica in between would be counted without its rows."""
    store(clients, 1)
    steps: list[str] = []
    wait, read = builder.wait_for_replicas, builder.read_changes

    def waited(client: Client, cluster: Cluster, *names: str) -> None:
        steps.extend(names)
        wait(client, cluster, *names)

    def were_read(*args: Any) -> dict[int, Changes]:
        steps.append("changes")
        return read(*args)

    monkeypatch.setattr(builder, "wait_for_replicas", waited)
    monkeypatch.setattr(builder, "read_changes", were_read)
    assert builder.build(clients.get(), Bucket(HOURS, HOUR_S))
    assert steps[:3] == ["sample_changes", "changes", "samples"]


def test_without_room_on_the_disk_nothing_is_built(clients: Clients, tmp_path: Path) -> None:
    store(clients, 1)
    room = DiskRoom("rollups", tmp_path, 10**12)
    with pytest.raises(DiskFullError):
        Rollups(clients, room=room).step(threading.Event(), int(time.time()) + 2 * REQUESTS_QUIET_S)
    assert valid(clients.get()) == []
