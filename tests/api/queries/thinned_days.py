"""Days of requests, how they are thinned, and what is there before and after."""

import random
import threading
import time
from datetime import datetime, timezone
from typing import Any

from icestream.clickhouse.thinning import IS_SAMPLED
from sinks.clickhouse.cluster import GLOBAL, of_this_host
from sinks.requests import thin_requests
from sinks.rollups.changes import insert_settings, note_work_sql
from tests.api.conftest import Api
from tests.api.queries.request_store import OPERATIONS, Requests, whole_minutes
from tests.api.queries.rollup_store import DAY, HOUR, T0

DAYS = [datetime.fromtimestamp(T0 + day * DAY, timezone.utc).date() for day in range(2)]
RANGE = {"start": str(T0), "end": str(T0 + 2 * DAY)}
TABLES = ("activity", "entry_spans", "spans", "span_operations")


def step(requests: Requests, now: float = 0, client: Any = None) -> bool:
    """Thins a day that is due, if there is one, as if the last change was two days ago."""
    at = int(now or time.time() + 2 * DAY)
    return thin_requests.thin_requests(client or requests.client, at, 3, threading.Event(), requests.cluster)


def thin(requests: Requests, now: float = 0) -> None:
    """Thins all days that are due, one after the other."""
    while step(requests, now):
        pass


def truncate(requests: Requests, table: str) -> None:
    requests.client.command(f"TRUNCATE TABLE {of_this_host(table, requests.cluster)}")


def states(requests: Requests) -> dict[Any, list[str]]:
    """The states that each day had, one after the other."""
    rows = requests.client.query("SELECT day, toString(state) FROM thinned_days ORDER BY noted_time").result_rows
    found: dict[Any, list[str]] = {}
    for day, state in rows:
        of_day = found.setdefault(day, [])
        if of_day[-1:] != [state]:
            of_day.append(state)
    return found


def rows_of(requests: Requests, table: str) -> list[tuple[Any, ...]]:
    final = "" if table == "activity" else "FINAL"
    return [tuple(row) for row in requests.client.query(f"SELECT * FROM {table} {final} ORDER BY ALL").result_rows]


def ids(requests: Requests, select: str) -> set[bytes]:
    return {row[0] for row in requests.client.query(select, settings=GLOBAL).result_rows}


def answers(requests: Requests, api: Api) -> list[Any]:
    """What is asked of operations and of samples."""
    asked: list[Any] = [requests.answer(selection) for selection in whole_minutes(random.Random(3))]
    for operation in OPERATIONS:
        selector = f'{{operation="{operation}"}}'
        asked.append(api.json("/api/v1/timeline", selector=selector, sum_by="service", step="3600s", **RANGE))
    asked.append(api.json("/api/v1/timeline", sum_by="operation", step="600s", **RANGE))
    asked.append(api.json("/api/v1/timeline", selector='{span_name="a name"}', step="3600s", **RANGE))
    asked.append(api.json("/api/v1/labels/operation/values", **RANGE))
    return asked


def kept_ids(requests: Requests) -> tuple[set[bytes], set[bytes]]:
    """The traces that are kept by their ID, and for one of their requests."""
    drawn = (ids(requests, f"SELECT trace_id FROM {table} WHERE {IS_SAMPLED}") for table in ("activity", "spans"))
    return set().union(*drawn), ids(requests, "SELECT trace_id FROM kept_traces")


def assert_whole(requests: Requests, before: dict[str, list[tuple[Any, ...]]], kept: set[bytes]) -> None:
    """Traces have all rows that they had before."""
    for table, rows in before.items():
        after = rows_of(requests, table)
        assert set(after) <= set(rows)
        assert [row for row in after if kept & set(row)] == [row for row in rows if kept & set(row)], table


def note_work(requests: Requests, state: str) -> None:
    """Notes that a job has begun or ended to replace activity."""
    note = note_work_sql(state, T0 * 10**9, (T0 + HOUR) * 10**9, of_operations=True)
    requests.client.command(note, settings=insert_settings(requests.cluster))
