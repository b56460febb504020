"""With the retention of new tables, what rollups can answer stays the same when samples go, and none goes before."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from api.queries.stacks.stack_values import read_selected_stacks
from api.queries.stacks.timeline import read_timeline
from icestream.clickhouse.rollups import HOURS
from sinks.clickhouse.retention import DEFAULT_DAYS, set_retention
from sinks.rollups import builder
from sinks.rollups.buckets import Bucket
from sinks.rollups.changes import note_work_sql
from sinks.settings import RollupDays
from tests.api.conftest import Api
from tests.api.queries.rollup_store import DAY, HOUR, LABELS, STACKS, Store, parse, select

TODAY = int(time.time()) // DAY * DAY
OLD, YOUNG = TODAY - 20 * DAY, TODAY - 3 * DAY


@pytest.fixture
def unbuilt(store: Store) -> Iterator[Store]:
    """A store as after weeks without a sink: nothing was summed up. It keeps samples as long as new tables do."""
    choose = random.Random(1)
    rows = 500
    store.insert(
        [choose.choice(LABELS) for _ in range(rows)],
        [choose.choice((OLD, YOUNG)) + choose.random() * DAY for _ in range(rows)],
        [choose.randrange(STACKS) for _ in range(rows)],
        [1] * rows,
    )
    set_retention(store.client, None, new=True)
    yield store
    set_retention(store.client, 0, RollupDays(0, 0, 0))  # other tests have these tables


def test_answers_stay_when_samples_go_and_samples_stay_until_their_rollups_are_complete(
    unbuilt: Store, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(unbuilt, api)
    unbuilt.client.command("OPTIMIZE TABLE samples")  # ClickHouse drops what it finds too old
    build, waits = builder.build, [Bucket(HOURS, OLD + 5 * HOUR)]

    def build_others(client: Client, *buckets: Bucket, **named: Any) -> bool:
        others = [each for each in buckets if each not in waits and each.start_unix_s < YOUNG]  # whose samples may stay
        return bool(others) and build(client, *others, **named)

    monkeypatch.setattr(builder, "build", build_others)
    later = time.time() + DAY + builder.QUIET_S
    unbuilt.build(later)
    assert days_of_samples(unbuilt) == [OLD, YOUNG]
    assert answers(unbuilt, api) == expected
    waits.clear()
    for state in ("begun", "ended"):
        unbuilt.client.command(note_work_sql(state, OLD * 10**9, (OLD + HOUR) * 10**9))
    unbuilt.build()
    assert days_of_samples(unbuilt) == [OLD, YOUNG]  # the job may still fill the day, hour by hour
    unbuilt.build(later)
    assert YOUNG > time.time() - DEFAULT_DAYS * DAY > OLD
    assert days_of_samples(unbuilt) == [YOUNG]
    assert answers(unbuilt, api) == expected


def days_of_samples(store: Store) -> list[int]:
    rows = store.client.query("SELECT DISTINCT toUnixTimestamp(toStartOfDay(time)) AS day FROM samples ORDER BY day")
    return [row[0] for row in rows.result_rows]


def answers(store: Store, api: Api) -> list[Any]:
    """What rollups can answer: stacks, timelines and values of labels, for times that begin and end with a bucket."""
    found: list[Any] = []
    choose = random.Random(2)
    for selector, unit in (
        ("{}", 0), ("{}", HOUR), ('{service="cart"}', HOUR), ('{host="a"}', DAY), ('{host!="b"}', 0),
    ):  # fmt: skip
        start, end = OLD, YOUNG + DAY
        if unit:
            start, end = (OLD + each * unit for each in sorted(choose.sample(range(DAY // unit + 1), 2)))
        selection = select(parse(selector), start, end)
        stacks = read_selected_stacks(store.database, selection, 100)
        found.append(sorted(zip(stacks.stack_ids.tolist(), stacks.values.tolist(), strict=True)))
        timeline = read_timeline(store.database, selection, HOUR * 1000, ("host",))
        found.append(sorted(zip(timeline.labels, timeline.values.tolist(), strict=True)))
        found.append(api.json("/api/v1/labels/host/values", selector=selector, start=str(start), end=str(end)))
    for first, last in ((60, 120), (65, 80), (90, 290)):
        minutes = read_timeline(store.database, select((), OLD + first * 60, OLD + last * 60), 60_000, ("service",))
        found.append(sorted(zip(minutes.labels, minutes.values.tolist(), strict=True)))
    for start, end, step_s, label in ((0, 1800, 1, "service"), (0, 5 * HOUR, 60, "host"), (0, DAY, 50, "host")):
        # No rollup fits into these steps: sums of minutes and hours are where they start.
        steps = read_timeline(store.database, select((), OLD + start, OLD + end), step_s * 1000, (label,))
        found.append(sorted(zip(steps.labels, steps.values.sum(axis=1).tolist(), strict=True)))
    return found
