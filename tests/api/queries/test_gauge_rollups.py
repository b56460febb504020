"""Averages of gauges over long ranges are those of rows, whatever was built, came late or is gone."""

import re
import time
from collections.abc import Iterator

import pytest

from api.queries.selection.selection import Selection
from api.queries.selection.selector import parse
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.labelled_stack_values import read_labelled_stack_values
from api.queries.stacks.stack_values import read_selected_stacks
from api.queries.stacks.timeline import read_timeline
from api.terminal.draw import draw_timeline, draw_tree
from icestream.clickhouse.rollups import GAUGE_DAYS, GAUGE_HOURS
from icestream.ids import series_id
from sinks.rollups import builder
from sinks.rollups.builds import read_valid_builds
from sinks.rollups.changes import note_added
from tests.api.conftest import Api
from tests.api.queries.rollup_store import DAY, HOUR, LABELS, STACKS, T0, Store, pa_times
from tests.data.tables import insert_columns, to_datetime
from tests.sinks.clusters import Shards

IN_USE = "memory:inuse_space:bytes:space:bytes"
SELECTORS = ("{}", '{service="cart"}', '{host="a"}', '{service=~"c.*", host!="b"}')
Averages = dict[tuple[str, int], float]
"""By a label's value or nothing, and a stack or the start of a step."""


class Gauges(Store):
    """`Store` with profiles of memory in use, beside samples of CPU."""

    def profile(self, labels: dict[str, str], times: list[float], host: str = "") -> None:
        """Takes a profile of a few stacks at each of these times, on the host of the labels or on another one."""
        rows = [(at, stack) for at in times for stack in self.random.sample(range(STACKS), self.random.randrange(1, 4))]
        insert_columns(
            self.client, "samples", profile_type=IN_USE, service=labels["service"], host_id=host or labels["host"],
            series_id=series_id(labels.items()), time=[to_datetime(at) for at, _ in rows],
            stack_id=[stack for _, stack in rows], value=[self.random.randrange(10**9) for _ in rows],
        )  # fmt: skip
        self._flush("samples")
        note_added(self.client, [pa_times(times)], self.cluster)

    def come(self) -> None:
        """Two days; one series is not there all the time, and one has a single profile."""
        self.add(50)
        every_s = (600, 900, 600, 3 * DAY)
        for labels, step_s, first_s in zip(LABELS, every_s, (0, 0, DAY // 2, HOUR), strict=True):
            offset_s = round(self.random.uniform(0, 60), 3)
            self.profile(labels, [T0 + at + offset_s for at in range(first_s, 2 * DAY, step_s)])

    def stacks(self, selection: Selection) -> Averages:
        found = read_selected_stacks(self.database, selection, 100)
        grouped = read_labelled_stack_values(self.database, selection, "host", 100)
        hosts = [grouped.values[row] for row in grouped.value_of_stack.tolist()]
        of_stacks = zip([""] * len(found.values), found.stack_ids.tolist(), found.values.tolist(), strict=True)
        of_hosts = zip(hosts, grouped.stacks.stack_ids.tolist(), grouped.stacks.values.tolist(), strict=True)
        return {(host, stack): value for host, stack, value in (*of_stacks, *of_hosts)}

    def timeline(self, selection: Selection, step_s: int) -> Averages:
        line = read_timeline(self.database, selection, step_s * 1000, ("service",))
        starts = line.times_unix_milli.tolist()
        return {
            (*labels, at): value
            for labels, values in zip(line.labels, line.values.tolist(), strict=True)
            for at, value in zip(starts, values, strict=True)
            if value
        }


def select(selector: str, start: float, end: float) -> Selection:
    time_range = TimeRange(round(start * 1000) * 10**6, round(end * 1000) * 10**6)
    return Selection(IN_USE, parse(selector), time_range)


def whole_days() -> Iterator[Selection]:
    for selector in SELECTORS:
        yield select(selector, T0, T0 + 2 * DAY)
    yield select("{}", T0 + DAY, T0 + 2 * DAY)


def answers(gauges: Gauges, with_edges: bool = True) -> list[Averages]:
    found = [gauges.stacks(selection) for selection in whole_days()]
    found += [gauges.timeline(select(SELECTORS[2], T0, T0 + 2 * DAY), step_s) for step_s in (HOUR, 4 * HOUR)]
    if with_edges:
        edges = select(SELECTORS[1], T0 - 1.5 * HOUR, T0 + 1.6 * DAY)
        first_hours = select(SELECTORS[1], T0 - 1.5 * HOUR, T0 + 6.1 * HOUR)
        found += [gauges.stacks(edges), gauges.timeline(edges, HOUR), gauges.timeline(first_hours, 1000)]
    return found


def assert_equal(found: list[Averages], expected: list[Averages]) -> None:
    """But for rounding: sums of floats depend on their order."""
    assert [each.keys() for each in found] == [each.keys() for each in expected]
    assert [{key: pytest.approx(value, abs=1) for key, value in each.items()} for each in expected] == found


@pytest.fixture
def gauges(store: Store) -> Gauges:
    gauges = Gauges(store.clients)
    gauges.come()
    return gauges


def test_averages_are_those_of_rows_also_when_profiles_come_late_and_when_rows_are_gone(
    gauges: Gauges, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(gauges)
    assert all(expected)
    gauges.build()
    assert_equal(answers(gauges), expected)
    both_days = select("{}", T0, T0 + 2 * DAY)
    assert levels(read_selected_stacks(gauges.database, both_days, 100).rollups) == [("day", 2)]
    assert levels(read_timeline(gauges.database, both_days, HOUR * 1000, ()).rollups) == [("hour", 48)]
    gauges.profile(LABELS[1], [T0 + 5 * HOUR + 7, T0 + 5 * HOUR + 8])
    late = answers(gauges)
    assert late != expected
    gauges.build()
    assert_equal(answers(gauges), late)
    monkeypatch.setattr(builder, "sample_days", lambda client, cluster: 14)
    gauges.build(time.time() + 2 * DAY)
    assert gauges.client.query("SELECT count() FROM samples").result_rows == [(0,)]
    assert_equal(answers(gauges, with_edges=False), late[:-3])
    for path, draw in (("merge", lambda answer: draw_tree(answer, 1.0)), ("timeline", draw_timeline)):
        answer = api.json(f"/api/v1/{path}", profile_type=IN_USE, start=str(T0), end=str(T0 + 2 * DAY))
        assert (answer["unit"], answer["aggregation"], len(answer["rollups"])) == ("bytes", "average", 1)
        assert "averaged over time" in draw(answer)
        assert re.search(r"[\d.]+ [MG]iB", draw(answer))


def test_only_gauges_are_in_their_rollups(gauges: Gauges) -> None:
    gauges.build()
    for table in ("gauge_hours", "gauge_days", "gauge_stack_days"):
        assert gauges.client.query(f"SELECT DISTINCT profile_type FROM {table}").result_rows == [(IN_USE,)]


def test_days_whose_rollups_are_older_than_those_of_gauges_are_read_from_rows_until_they_are_built(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_days = select("{}", T0, T0 + 2 * DAY)

    def of_both_days() -> list[Averages]:
        return [gauges.stacks(both_days), gauges.timeline(both_days, HOUR)]

    expected = of_both_days()
    assert all(expected)
    with monkeypatch.context() as before:
        before.setattr(builder, "LEVELS", [each for each in builder.LEVELS if each not in (GAUGE_HOURS, GAUGE_DAYS)])
        gauges.build()
    assert_equal(of_both_days(), expected)
    gauges.build()
    assert len(read_valid_builds(gauges.client, GAUGE_DAYS, T0, T0 + 2 * DAY)) == 2
    assert_equal(of_both_days(), expected)


def test_profiles_on_several_shards_are_averaged_together(engine: str) -> None:
    shards = Shards(engine, "gauges_of_shards")
    gauges = Gauges(shards, shards.cluster)
    times = [T0 + 600.0 * number for number in range(100)]
    for host in ("a", "b"):  # each time is one profile
        gauges.profile(LABELS[0], times, host)
    hosts = f"SELECT {shards.slots['samples']} AS shard FROM samples GROUP BY shard"
    assert len(gauges.client.query(hosts).result_rows) == 2
    expected = gauges.stacks(select("{}", T0, T0 + DAY))
    gauges.build()
    assert_equal([gauges.stacks(select("{}", T0, T0 + DAY))], [expected])
    assert levels(read_selected_stacks(gauges.database, select("{}", T0, T0 + DAY), 100).rollups) == [("day", 1)]


def levels(parts: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(part["level"], part["buckets"]) for part in parts]
