"""Queries give the sums of the samples, whatever was built, changed or killed before."""

import random
import time
from collections.abc import Callable

import pytest

from api.queries.rollups import ReadPlan, make_plan
from api.queries.selection.selector import parse
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import read_selected_stacks
from icestream.clickhouse.client import connect
from icestream.clickhouse.rollups import DAYS, HOURS, MINUTES
from icestream.times import format_unix_nano
from sinks.clickhouse.cluster import ON_EACH_SHARD, delete_from
from sinks.rollups import builder
from sinks.rollups.buckets import Bucket
from sinks.rollups.builder import Rollups
from sinks.rollups.changes import insert_settings, note_added
from sinks.rollups.tables import fill, fill_parameters
from tests.api.conftest import Api
from tests.api.queries.rollup_store import DAY, HOUR, LABELS, T0, Store, pa_times, select
from tests.sinks.clusters import Shards
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def shards(engine: str) -> Shards:
    return Shards(engine, "rollups_of_shards")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_sums_are_those_of_samples_whatever_happens(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store.random = random.Random(seed)
    events = store.random.sample(("late", "build", "replace", "job is killed", "builder is killed"), 5)
    sums_are_those_of_samples(store, events, 2, monkeypatch)


def test_sums_over_all_shards_are_those_of_samples(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(shards, shards.cluster)
    sums_are_those_of_samples(store, ["late", "replace"], 1, monkeypatch)  # shards take several times the CPU
    hosts = f"SELECT {shards.slots['samples']} AS shard, groupUniqArray(host_id) FROM samples GROUP BY shard"
    assert len(store.client.query(hosts).result_rows) == 2
    later = int(time.time()) + 7200
    for level in (HOURS, DAYS):
        builder.drop_unused_builds(store.client, level, later, shards.cluster)
    builds = "SELECT uniqExact(build), uniqExact(start_time) FROM series_stack_days"
    assert store.client.query(builds).result_rows == [(2, 2)]
    both_days = select((), T0, T0 + 2 * DAY)
    store.check(both_days)
    total = store.client.query("SELECT sum(value), count() > 0 FROM samples").result_rows
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 14)
    store.build(time.time() + 2 * DAY)
    assert store.client.query("SELECT count() FROM samples").result_rows == [(0,)]
    assert [(read_selected_stacks(store.database, both_days, 100).total, 1)] == total


def test_each_shard_sums_up_its_own_samples(shards: Shards, engine: str) -> None:
    """Without the filter, both shards have all samples: each writes all sums."""
    Store(shards, shards.cluster).insert([LABELS[0]], [T0 + 9 * DAY], [1], [1])
    hour = {T0 + 9 * DAY: 1}
    connect(engine, database="rollups_of_shards").command(
        fill(MINUTES, hour, insert_settings(shards.cluster) | ON_EACH_SHARD)["service_minutes"],
        parameters=fill_parameters(MINUTES, hour),
    )
    rows = "SELECT count, value FROM service_minutes WHERE build = 1"
    assert shards.local.query(rows).result_rows == [(1, 10), (1, 10)]


def sums_are_those_of_samples(
    store: Store, events: list[str], selections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`selections`: how many are checked after each event."""
    store.add(300)
    store.build()
    unfinished: list[Callable[[], None]] = []
    for event in events:
        if event == "late":
            store.add(10, first=store.random.randrange(2), days=1)
        elif event == "build":
            store.build()
        elif event == "builder is killed":
            kill_builder(store, monkeypatch)
        else:
            end = store.begin_replace()
            if event == "replace":
                store.build()  # meanwhile
                end()
            else:
                unfinished.append(end)
        for _ in range(selections):
            store.check(store.selection())
        if event == "replace":
            store.build()
            store.check(store.selection())
    for end in unfinished:
        end()
    store.build()
    everything = select((), T0 - DAY, T0 + 3 * DAY)
    store.check(everything)
    assert [len(part.buckets) for part in make_plan(store.database, everything.time_range, (DAYS,)).parts] == [2]
    for _ in range(3 * selections):
        store.check(store.selection())


def test_samples_that_come_while_a_build_reads_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(50, days=1)
    note = builder.note_builds

    def arrive(*arguments: object) -> None:
        if arguments[3] == "built":
            store.insert([LABELS[0]], [T0 + 5], [1], [1])
        note(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builder, "note_builds", arrive)
    store.build()
    monkeypatch.undo()
    store.check(select((), T0, T0 + DAY))
    store.build()
    assert_from_rollups(store, T0, T0 + DAY)
    store.check(select((), T0, T0 + DAY))


def test_two_builders_at_once_count_once(store: Store) -> None:
    store.add(100, days=1)
    other = Store.__new__(Store)
    other.__dict__.update(store.__dict__ | {"builder": Rollups(store.clients, PATIENCE_S)})
    for level in (HOURS, DAYS):
        for _ in range(2):
            builder.build(store.client, Bucket(level, T0))
    other.build()
    assert_from_rollups(store, T0, T0 + DAY)
    store.check(select((), T0, T0 + DAY))
    later = int(time.time()) + 7200
    builder.drop_unused_builds(store.client, DAYS, later)
    assert store.client.query("SELECT uniqExact(build) FROM series_stack_days").result_rows == [(1,)]
    store.check(select((), T0, T0 + DAY))


def test_rollups_stay_when_samples_are_gone(store: Store, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 14)
    store.add(200, days=1)
    store.build(T0 + DAY + 700)
    now = time.time() + 2 * DAY
    query = f"SELECT sum(value) FROM samples WHERE toUnixTimestamp(time) < {T0 + DAY}"
    total = store.client.query(query).result_rows[0][0]
    store.build(now)
    assert store.client.query("SELECT count() FROM samples").result_rows == [(0,)]
    note_added(store.client, [pa_times([T0 + 5])])  # too late: these are gone, too
    store.build(now + DAY)
    answer = api.json("/api/v1/timeline", start=str(T0 + 60), end=str(T0 + DAY), step="1h")
    assert sum(answer["groups"][0]["values"]) == total
    hour = T0 + 7 * HOUR
    for start, end, selector, found in (
        (T0, T0 + DAY, "{}", (T0, T0 + DAY)),
        (hour + 5, hour + 9, "{}", (hour, hour + HOUR)),
        (hour + 5, hour + 9, '{host=~"a|b"}', (T0, T0 + DAY)),
    ):
        read = read_selected_stacks(store.database, select(parse(selector), start, end), 100)
        assert [(part["start"], part["end"]) for part in read.rollups] == [tuple(map(iso, found))]
        assert (read.total == total) == (found == (T0, T0 + DAY))


def test_a_job_that_was_killed_leaves_its_hour_to_samples(store: Store) -> None:
    store.add(300)
    store.begin_replace()
    store.build()
    parts = make_plan(store.database, TimeRange(T0 * 10**9, (T0 + 2 * DAY) * 10**9), (DAYS, HOURS)).parts
    assert [len(part.buckets) for part in parts] == [1, 23]


def test_a_few_recent_minutes_ask_for_no_rollups(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.database, "table", None)
    now = int(time.time()) // HOUR * HOUR + 60
    time_range = TimeRange((now - 900) * 10**9, now * 10**9)
    assert make_plan(store.database, time_range, (DAYS, HOURS)) == ReadPlan([], [time_range])


def kill_builder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build has written its rows, and is killed before it says so."""
    note = builder.note_builds

    def killed(*arguments: object) -> None:
        if arguments[3] == "built":
            raise KeyboardInterrupt
        note(*arguments)  # type: ignore[arg-type]

    store.add(1)
    monkeypatch.setattr(builder, "note_builds", killed)
    with pytest.raises(KeyboardInterrupt):
        store.build()
    monkeypatch.undo()
    built = [row[0] for row in store.client.query("SELECT build FROM rollup_builds WHERE state = 'built'").result_rows]
    killed_builds = f"{delete_from('rollup_builds', store.cluster)} WHERE state = 'begun' AND build NOT IN {built}"
    store.client.command(killed_builds)


def assert_from_rollups(store: Store, start: float, end: float) -> None:
    assert make_plan(store.database, select((), start, end).time_range, (DAYS,)).samples == []


def iso(unix_s: float) -> str:
    return format_unix_nano(int(unix_s) * 10**9)
