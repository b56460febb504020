"""Tables with samples and rollups, and what happens to them."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from api.queries.database import Database
from api.queries.selection.selection import Selection
from api.queries.selection.selector import parse
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.labelled_stack_values import read_labelled_stack_values
from api.queries.stacks.stack_values import read_selected_stacks
from api.queries.stacks.timeline import read_timeline
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.ids import series_id
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, delete_from
from sinks.rollups import builder
from sinks.rollups.builder import Rollups
from sinks.rollups.changes import insert_settings, note_added, note_work_sql
from tests.data.tables import insert_columns, insert_series, to_datetime
from tests.waiting import PATIENCE_S

DAY, HOUR = 86_400, 3600
T0 = 1_770_000_000 // DAY * DAY
LABELS = [{"service": s, "host": h} for s in ("cart", "checkout") for h in ("a", "b")]
SELECTORS = ("{}", '{service="cart"}', '{service=~"c.*", host="a"}', '{host!="b"}')
STACKS = 5


class Store:
    """The tables, and what is done to them."""

    asked_days = (-0.5, 2.5)
    """Where selections begin and end."""

    def __init__(self, clients: Clients, cluster: Cluster = ONE_SERVER) -> None:
        self.clients = clients
        self.client = clients.get()
        self.cluster = cluster
        self.database = Database(clients, ApiSettings())
        self.random = random.Random(0)
        self.builder = Rollups(clients, PATIENCE_S)
        insert_series(self.client, LABELS, to_datetime(T0))
        self._flush("series")

    def _flush(self, table: str) -> None:
        """Brings what was inserted to the shards."""
        if self.cluster.local:
            self.client.command(f"SYSTEM FLUSH DISTRIBUTED {table}")

    def build(self, now: float = 0) -> None:
        """Builds what is due, as if the latest changes were some minutes ago."""
        self.builder.step(threading.Event(), int(now or time.time() + 2 * builder.QUIET_S))

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
        self._flush("samples")
        note_added(self.client, [pa_times(times)], self.cluster)

    def begin_replace(self) -> Callable[[], None]:
        """Does the first half of a job's work on ten minutes; returns the second half."""
        start = T0 + self.random.randrange(2 * DAY // 600) * 600
        span = start * 10**9, (start + 600) * 10**9
        within = f"time >= toDateTime64({start}, 3, 'UTC') AND time < toDateTime64({start + 600}, 3, 'UTC')"
        settings = insert_settings(self.cluster)
        self.client.command(note_work_sql("begun", *span), settings=settings)
        delete = f"{delete_from('samples', self.cluster)} WHERE {within}"
        self.client.command(delete, settings={"lightweight_deletes_sync": 2})

        def end() -> None:
            times = [start + self.random.random() * 600 for _ in range(5)]
            insert_columns(
                self.client, "samples", service="cart", host_id="a", series_id=series_id(LABELS[0].items()),
                time=[to_datetime(at) for at in times], stack_id=1, value=7,
            )  # fmt: skip
            self._flush("samples")
            self.client.command(note_work_sql("ended", *span), settings=settings)

        return end

    def selection(self) -> Selection:
        unit = self.random.choice((DAY, HOUR, 60, 0.001))
        start, end = sorted(round(self.random.uniform(*self.asked_days) * DAY / unit) * unit for _ in range(2))
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


def select(matchers: tuple, start: float, end: float) -> Selection:
    time_range = TimeRange(round(start * 1000) * 10**6, round(end * 1000) * 10**6)
    return Selection(DEFAULT_PROFILE_TYPE, matchers, time_range)


def ms(selection: Selection) -> tuple[int, int]:
    return selection.time_range.start_unix_nano // 10**6, selection.time_range.end_unix_nano // 10**6


def pa_times(times: list[float]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([int(at * 1000) for at in times], pa.timestamp("ms", "UTC"))])
