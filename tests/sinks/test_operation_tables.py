"""An hour of operations is built from whichever table has rows of it."""

import pytest
from clickhouse_connect.driver.client import Client

from icestream.rollups import OPERATION_MINUTES
from sinks import rollups
from sinks.buckets import Bucket
from tests.data.tables import insert_rows, to_datetime
from tests.sinks.messages import START_MS

HOUR_S = START_MS // 3_600_000 * 3600
SPAN = {"trace_id": b"a" * 16, "span_id": b"b" * 8, "service": "checkout"}
ACTIVITY = SPAN | {"operation": "GET /", "entry_span_id": b"c" * 8}
ROWS = {
    "samples": SPAN | {"time": to_datetime(HOUR_S + 60), "count": 1, "value": 10},  # of a request of the hour before
    "activity": ACTIVITY | {"start_time": to_datetime(HOUR_S + 60), "duration_ns": 100, "thread_cpu_ns": 10},
    "entry_spans": SPAN | {"operation": "GET /", "start_time": to_datetime(HOUR_S + 60), "duration_ns": 10},
}


@pytest.mark.parametrize("table", ROWS)
def test_an_hour_that_has_rows_in_one_table_only_is_built(client: Client, table: str) -> None:
    insert_rows(client, table, [ROWS[table]])
    others = ROWS.keys() - {table}
    assert not any(client.query(f"SELECT count() FROM {other}").result_rows[0][0] for other in others)
    assert rollups.build(client, Bucket(OPERATION_MINUTES, HOUR_S))
    found = client.query("SELECT sum(value), sum(thread_cpu_ns), sum(requests) FROM operation_minutes").result_rows
    assert found == [{"samples": (10, 0, 0), "activity": (0, 10, 0), "entry_spans": (0, 0, 1)}[table]]
