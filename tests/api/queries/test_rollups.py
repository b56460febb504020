"""Queries give the sums of the samples, whatever was built, changed or killed before."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from api.queries.database import Database
from api.queries.labelled_stack_values import read_labelled_stack_values
from api.queries.rollups import Plan, make_plan
from api.queries.selection import Selection, TimeRange
from api.queries.selector import parse
from api.queries.stack_values import read_selected_stacks
from api.queries.timeline import read_timeline
from api.settings import ApiSettings
from icestream.clickhouse import Clients
from icestream.ids import series_id
from icestream.rollups import DAYS, HOURS
from icestream.times import format_unix_nano
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks import rollups
from sinks.rollup_changes import note_added, note_work_sql
from sinks.rollups import Rollups
from tests.api.conftest import Api
from tests.data.tables import insert_columns, insert_series, to_datetime

DAY, HOUR = 86_400, 3600
T0 = 1_770_000_000 // DAY * DAY
LABELS = [{"service": s, "host": h} for s in ("cart", "checkout") for h in ("a", "b")]
SELECTORS = ("{}", '{service="cart"}', '{service=~"c.*", host="a"}', '{host!="b"}')
STACKS = 5


class Store:
    """The tables, and what is done to them."""

    def __init__(self, engine: str, database: str, client: Client, seed: int = 0) -> None:
        self.clients = Clients(engine, database=database)
        self.client = client
        self.database = Database(self.clients, ApiSettings())
        self.random = random.Random(seed)
        self.builder = Rollups(self.clients)
        insert_series(client, LABELS, to_datetime(T0))

    def build(self, now: float = 0) -> None:
        """Builds what is due, as if the latest changes were some minutes ago."""
        self.builder.step(threading.Event(), int(now or time.time() + 2 * rollups.QUIET_S))

    def add(self, rows: int, first: int = 0, days: int = 2) -> None:
        """Adds samples as a sink does: some are corrections, which take away what others have."""
        labels = [self.random.choice(LABELS) for _ in range(rows)]
        times = [T0 + (first + self.random.random() * days) * DAY for _ in range(rows)]
        sign = [self.random.choice((1, 1, 1, -1)) for _ in range(rows)]
        self.insert(labels, times, [self.random.randrange(STACKS) for _ in range(rows)], sign)

    def insert(self, labels: list[dict[str, str]], times: list[float], stacks: list[int], signs: list[int]) -> None:
        insert_columns(
            self.client, "samples", service=[one["service"] for one in labels], host_id=[one["host"] for one in labels],
            series_id=[series_id(one.items()) for one in labels], time=[to_datetime(at) for at in times],
            stack_id=stacks, count=signs, value=[sign * 10 for sign in signs],
        )  # fmt: skip
        note_added(self.client, [pa_times(times)])

    def begin_replace(self) -> Callable[[], None]:
        """Does the first half of a job's work on ten minutes; returns the second half."""
        start = T0 + self.random.randrange(2 * DAY // 600) * 600
        span = start * 10**9, (start + 600) * 10**9
        within = f"time >= toDateTime64({start}, 3, 'UTC') AND time < toDateTime64({start + 600}, 3, 'UTC')"
        self.client.command(note_work_sql("begun", *span))
        self.client.command(f"DELETE FROM samples WHERE {within}", settings={"lightweight_deletes_sync": 2})

        def end() -> None:
            times = [start + self.random.random() * 600 for _ in range(5)]
            insert_columns(
                self.client, "samples", service="cart", host_id="a", series_id=series_id(LABELS[0].items()),
                time=[to_datetime(at) for at in times], stack_id=1, value=7,
            )  # fmt: skip
            self.client.command(note_work_sql("ended", *span))

        return end

    def selection(self) -> Selection:
        unit = self.random.choice((DAY, HOUR, 60, 0.001))
        start, end = sorted(round(self.random.uniform(-0.5, 2.5) * DAY / unit) * unit for _ in range(2))
        matchers = parse(self.random.choice(SELECTORS))
        return select(matchers, T0 + start, T0 + max(end, start + unit))

    def check(self, selection: Selection) -> None:
        """Compares graphs and timelines with the sums of samples."""
        start, end = (f"fromUnixTimestamp64Milli({at})" for at in ms(selection))
        where = f"WHERE time >= {start} AND time < {end}"
        for matcher in selection.matchers:
            of = {"service": "service", "host": "host_id"}[matcher.label]
            text = f"match({of}, '^{matcher.value}$')" if "~" in matcher.operator else f"{of} = '{matcher.value}'"
            where += f" AND NOT {text}" if matcher.operator.startswith("!") else f" AND {text}"
        expected = self.client.query(
            f"SELECT stack_id, sum(value) AS v, sum(count) AS c FROM samples {where}"
            " GROUP BY stack_id HAVING v != 0 OR c != 0 ORDER BY stack_id"
        ).result_rows
        found = read_selected_stacks(self.database, selection, 100)
        rows = zip(found.stack_ids.tolist(), found.values.tolist(), found.counts.tolist(), strict=True)
        assert sorted(rows) == [tuple(row) for row in expected]
        grouped = read_labelled_stack_values(self.database, selection, "host", 100)
        hosts = [grouped.values[row] for row in grouped.value_of_stack.tolist()]
        of_host = self.client.query(
            f"SELECT host_id, stack_id, sum(value) AS v FROM samples {where} GROUP BY ALL HAVING v != 0 ORDER BY ALL"
        ).result_rows
        cells = zip(hosts, grouped.stacks.stack_ids.tolist(), grouped.stacks.values.tolist(), strict=True)
        assert sorted(cell for cell in cells if cell[2]) == [tuple(row) for row in of_host]
        self.check_timeline(selection, where)

    def check_timeline(self, selection: Selection, where: str) -> None:
        step = self.random.choice((60_000, HOUR * 1000, DAY * 1000, 37_000))
        label = self.random.choice(("", "service", "host"))
        timeline = read_timeline(self.database, selection, step, (label,) if label else ())
        origin, sums = int(timeline.times_unix_milli[0]), Counter[tuple[str, int]]()
        of_label = {"": "''", "service": "service", "host": "host_id"}[label]
        for value, at, v in self.client.query(
            f"SELECT {of_label}, intDiv(toUnixTimestamp64Milli(time) - {origin}, {step}) AS at, sum(value) FROM samples"
            f" {where} GROUP BY ALL"
        ).result_rows:
            sums[str(value), int(at)] = int(v)
        found_sums = {
            ("".join(labels), at): v
            for labels, values in zip(timeline.labels, timeline.values.tolist(), strict=True)
            for at, v in enumerate(values)
            if v
        }
        assert found_sums == {key: v for key, v in sums.items() if v}


@pytest.fixture
def store(engine: str, database: str, client: Client) -> Store:
    return Store(engine, database, client)


@pytest.mark.parametrize("seed", range(2))
def test_sums_are_those_of_samples_whatever_happens(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store.random = random.Random(seed)
    store.add(300)
    store.build()
    unfinished: list[Callable[[], None]] = []
    for _ in range(5):
        event = store.random.choice(("late", "late", "build", "replace", "job is killed", "builder is killed"))
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
        for _ in range(3):
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
    for _ in range(8):
        store.check(store.selection())


def test_samples_that_come_while_a_build_reads_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(50, days=1)
    note = rollups._note

    def arrive(*arguments: object) -> None:
        if arguments[3] == "built":
            store.insert([LABELS[0]], [T0 + 5], [1], [1])
        note(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rollups, "_note", arrive)
    store.build()
    monkeypatch.undo()
    store.check(select((), T0, T0 + DAY))
    store.build()
    assert_from_rollups(store, T0, T0 + DAY)
    store.check(select((), T0, T0 + DAY))


def test_two_builders_at_once_count_once(store: Store) -> None:
    store.add(100, days=1)
    other = Store.__new__(Store)
    other.__dict__.update(store.__dict__ | {"builder": Rollups(store.clients)})
    for level in (HOURS, DAYS):
        for _ in range(2):
            rollups.build(store.client, rollups.Bucket(level, T0))
    other.build()
    assert_from_rollups(store, T0, T0 + DAY)
    store.check(select((), T0, T0 + DAY))
    later = int(time.time()) + 7200
    rollups.drop_unused(store.client, DAYS, later)
    assert store.client.query("SELECT uniqExact(build) FROM series_stack_days").result_rows == [(1,)]
    store.check(select((), T0, T0 + DAY))


def test_rollups_stay_when_samples_are_gone(store: Store, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "kept_days", lambda client, table, level="": 14 if table == "samples" else 0)
    store.add(200, days=1)
    store.build(T0 + DAY + 700)
    now = T0 + 15 * DAY
    query = f"SELECT sum(value) FROM samples WHERE toUnixTimestamp(time) < {T0 + DAY}"
    total = store.client.query(query).result_rows[0][0]
    store.build(now)
    store.client.command("TRUNCATE TABLE samples")
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
    assert make_plan(store.database, time_range, (DAYS, HOURS)) == Plan([], [time_range])


def kill_builder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build has written its rows, and is killed before it says so."""
    note = rollups._note

    def killed(*arguments: object) -> None:
        if arguments[3] == "built":
            raise KeyboardInterrupt
        note(*arguments)  # type: ignore[arg-type]

    store.add(1)
    monkeypatch.setattr(rollups, "_note", killed)
    with pytest.raises(KeyboardInterrupt):
        store.build()
    monkeypatch.undo()
    store.client.command("DELETE FROM rollup_builds WHERE state = 'begun' AND build NOT IN"
                         " (SELECT build FROM rollup_builds WHERE state = 'built')")  # fmt: skip


def assert_from_rollups(store: Store, start: float, end: float) -> None:
    assert make_plan(store.database, select((), start, end).time_range, (DAYS,)).samples == []


def select(matchers: tuple, start: float, end: float) -> Selection:
    time_range = TimeRange(round(start * 1000) * 10**6, round(end * 1000) * 10**6)
    return Selection(DEFAULT_PROFILE_TYPE, matchers, time_range)


def ms(selection: Selection) -> tuple[int, int]:
    return selection.time_range.start_unix_nano // 10**6, selection.time_range.end_unix_nano // 10**6


def pa_times(times: list[float]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([int(at * 1000) for at in times], pa.timestamp("ms", "UTC"))])


def iso(unix_s: float) -> str:
    return format_unix_nano(int(unix_s) * 10**9)
