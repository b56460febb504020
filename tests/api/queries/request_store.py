"""A store with requests of two days, whose rows come in any order, and the answers about their operations."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from api.queries.operations import operations
from api.queries.operations.operations import read_operations
from api.queries.rollups import ReadPlan
from api.queries.selection.selection import Selection
from api.queries.selection.selector import parse
from icestream.clickhouse.client import Clients
from icestream.ids import series_id
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, delete_from
from sinks.rollups.changes import REQUESTS_QUIET_S, insert_settings, note_added, note_requests, note_work_sql
from tests.api.queries.rollup_store import DAY, HOUR, LABELS, T0, Store, pa_times, select
from tests.data.tables import NO_SPAN, NO_TRACE, insert_rows, to_datetime

EVENING = T0 + 22 * HOUR
"""Requests come in the hours around midnight: into both days, but into few hours, because each hour with rows is built
alone."""
SELECTORS = (
    "{}", '{service="cart"}', '{operation=~"GET.*"}', '{service=~"c.*", operation!="GET /a"}',
    '{service="cart", service_version="1.1"}', '{service_version!="1.0", operation!="GET /a"}',
)  # fmt: skip
OPERATIONS = ("GET /a", "GET /b", "charge")
LABEL_SETS = ("", '{"service_version":"1.0"}', '{"service_version":"1.1"}')
Rows = dict[str, list[dict[str, Any]]]


class Requests(Store):
    """`Store`, whose samples belong to requests."""

    asked_days = (0.4, 1.8)

    def __init__(self, clients: Clients, cluster: Cluster = ONE_SERVER) -> None:
        super().__init__(clients, cluster)
        self.count = 0

    def build(self, now: float = 0) -> None:
        super().build(now or time.time() + 2 * REQUESTS_QUIET_S)

    def come(self, requests: int, first: float = 22 / 24, days: float = 4 / 24) -> None:
        """Requests come as sinks bring them; of some, samples come first, or spans last, or twice."""
        rows = [self.request(T0 + (first + self.random.random() * days) * DAY) for _ in range(requests)]
        tables = ["samples", "activity", "spans"]
        for table in [*self.random.sample(tables, 3), self.random.choice(("spans", "nothing"))]:
            self.bring(table, [row for of_request in rows for row in of_request.get(table, [])])

    def bring(self, table: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        insert_rows(self.client, table, rows)
        self._flush(table)
        if table == "samples":
            note_added(self.client, [pa_times([row["time"].timestamp() for row in rows])], self.cluster)
            return
        columns = ("start_time", "end_time") if table == "spans" else ("start_time",)
        noted = pa.table({name: pa.array([row[name] for row in rows], pa.timestamp("ns", "UTC")) for name in columns})
        intervals, spans = ([], [noted]) if table == "spans" else ([noted], [])
        note_requests(self.client, intervals, spans, {}, self.cluster)

    def request(self, at: float) -> Rows:
        """A request, with what it has; times are whole milliseconds."""
        choose, at = self.random, round(at, 3)
        self.count += 1
        labels = choose.choice(LABELS)
        source = {"host_id": labels["host"], "service": labels["service"]}
        source["request_labels"] = choose.choice(LABEL_SETS)
        operation, duration = choose.choice(OPERATIONS), round(10 ** choose.uniform(-3, 4), 3)  # 1 ms to 3 hours
        trace, entry, inner = (
            n.to_bytes(size, "big") for n, size in ((self.count, 16), (self.count * 2, 8), (self.count * 2 + 1, 8))
        )
        times = [at, *(at + duration * choose.random() for _ in range(choose.randrange(3)))]
        if duration < HOUR / 2:
            times.append(at + duration + 1000 * choose.random())  # a task that goes on after its request
        spans = [choose.choice((entry, inner)) for _ in times]
        activity = [
            {"trace_id": trace, "span_id": span, "start_time": to_datetime(round(time, 3)), "duration_ns": 10**8,
             "thread_cpu_ns": choose.randrange(10**9), "operation": operation, "entry_span_id": entry} | source
            for time, span in zip(times, spans, strict=True)
        ]  # fmt: skip
        of_series = {"series_id": series_id(labels.items())} | source
        samples = [
            {"time": to_datetime(round(time + 0.05, 3)), "trace_id": trace, "span_id": span,
             "count": 1, "value": choose.choice((10, 20))} | of_series
            for time, span in zip(times, spans, strict=True)
        ]  # fmt: skip
        samples.append(samples[0] | {"trace_id": NO_TRACE, "span_id": NO_SPAN})
        reported = [
            {"trace_id": trace, "span_id": span, "parent_span_id": parent, "name": "a name", "operation": of_entry,
             "status": choose.choice(("", "ok", "error")), "start_time": to_datetime(at),
             "end_time": to_datetime(at + duration)} | source
            for span, parent, of_entry in ((entry, NO_SPAN, operation), (inner, entry, ""))
        ]  # fmt: skip
        everything = {"samples": samples, "activity": activity, "spans": reported}
        lacks = choose.choice(("", "", "", "activity", "spans"))  # sent by others; still at work
        return {table: rows for table, rows in everything.items() if table != lacks}

    def begin_replace(self) -> Callable[[], None]:
        """Does the first half of a job's work on the activity of ten minutes; returns the second half."""
        start = EVENING + self.random.randrange(6 * HOUR // 600) * 600
        span = start * 10**9, (start + 600) * 10**9
        within = f"start_time >= toDateTime({start}, 'UTC') AND start_time < toDateTime({start + 600}, 'UTC')"
        rows = list(self.client.query(f"SELECT * FROM activity WHERE {within}").named_results())
        settings = insert_settings(self.cluster)
        self.client.command(note_work_sql("begun", *span, of_operations=True), settings=settings)
        delete = f"{delete_from('activity', self.cluster)} WHERE {within}"
        self.client.command(delete, settings={"lightweight_deletes_sync": 2})

        def end() -> None:
            insert_rows(self.client, "activity", [row | {"thread_cpu_ns": row["thread_cpu_ns"] + 7} for row in rows])
            self._flush("activity")
            self.client.command(note_work_sql("ended", *span, of_operations=True), settings=settings)

        return end

    def selection(self) -> Selection:
        of_samples = super().selection()
        return Selection(of_samples.profile_type, parse(self.random.choice(SELECTORS)), of_samples.time_range)

    def check(self, selection: Selection) -> None:
        """Compares the answer with that from rows alone."""
        by = self.random.choice(((), ("service_version",)))
        assert self.answer(selection, by) == self.answer_of_rows(selection, by)

    def answer(self, selection: Selection, by: Sequence[str] = ()) -> list[dict[str, Any]]:
        return in_order(read_operations(self.database, selection, by).all)

    def answer_of_rows(self, selection: Selection, by: Sequence[str] = ()) -> list[dict[str, Any]]:
        plan, operations.make_plan = (
            operations.make_plan,
            lambda database, time_range, *_, **named: ReadPlan([], [time_range]),
        )
        try:
            return self.answer(selection, by)
        finally:
            operations.make_plan = plan

    def check_everything(self) -> None:
        self.check(select((), T0 - HOUR, T0 + 3 * DAY))
        self.check(self.selection())


class Squares(float):
    """A sum of squares, whose last digits depend on the order of the rows."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-9)

    __hash__ = float.__hash__


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    of_now = ("request_cpu_squares", "request_duration_squares")
    squares = (*of_now, *(f"previous_{name}" for name in of_now))
    found = [row | {name: Squares(row[name]) for name in squares} for row in rows]
    return sorted(found, key=lambda row: (row["service"], row["operation"], list(row["labels"].items())))


def whole_minutes(choose: random.Random) -> Iterator[Selection]:
    """Selections of whole minutes of two days, whose period before is of whole minutes, too."""
    for length in (1, 7, 60, 200, 24 * 60):
        start = EVENING - 2 * HOUR + choose.randrange(8 * 60) * 60
        yield select(parse(choose.choice(SELECTORS)), start, start + length * 60)
