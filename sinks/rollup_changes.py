"""Notes changes of samples in buckets whose rollups may have begun, so that queries do not read these any more.

A writer of samples notes a change after it; the builder (sinks/rollups.py) first notes that a build begins, then counts
the changes, and then reads samples. So a build that has not read a change does not have it in its count either: it
is not valid once the change is noted. The rows of a batch count from when the batch is stored, which is still later.
A job deletes rows and inserts them again, so it notes that before and after; nothing is built in between.
"""

import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.rollups import HOUR_S
from sinks.cluster import INSERT_SETTINGS, ONE_SERVER, Cluster, of_all_replicas

_HOUR_MS = HOUR_S * 1000


def note_added(client: Client, times: Iterable[pa.ChunkedArray], cluster: Cluster = ONE_SERVER) -> None:
    """Notes that samples with these times (milliseconds) were added, for hours whose rollups may have begun."""
    latest = f"SELECT toUnixTimestamp(max(end_time)) FROM {of_all_replicas('rollup_builds', cluster)}"
    settings = {"skip_unavailable_shards": 1} if cluster.name else None
    begun_s = client.query(latest, settings=settings).result_rows[0][0]
    hours: set[int] = set()
    for column in times if begun_s else ():
        unix_hours = np.unique(column.cast(pa.int64()).to_numpy() // _HOUR_MS)
        hours.update(unix_hours[unix_hours * HOUR_S < begun_s].tolist())
    if hours:
        _insert(client, [[hour * HOUR_S, "added", ""] for hour in sorted(hours)], cluster)


def note_work_sql(state: str, start_unix_nano: int, end_unix_nano: int) -> str:
    """Returns the INSERT ... SELECT, without WHERE, that notes that a job has begun or ended to replace samples of a
    time range."""
    first_ms, last_ms = start_unix_nano // 10**6, -(-end_unix_nano // 10**6)
    hours = [hour * HOUR_S for hour in range(first_ms // _HOUR_MS, last_ms // _HOUR_MS + 1)]
    return (
        "INSERT INTO sample_changes (start_time, state, work)"
        f" SELECT toDateTime(arrayJoin({hours}), 'UTC'), '{state}', '{first_ms}-{last_ms}'"
    )


def insert_settings(cluster: Cluster = ONE_SERVER) -> dict[str, Any]:
    """Returns the settings of an insert that must not be taken for a repetition of another one."""
    token = {"async_insert": 0, "insert_deduplication_token": uuid.uuid4().hex}
    return token | (INSERT_SETTINGS if cluster.name else {})


def _insert(client: Client, rows: list[list[Any]], cluster: Cluster) -> None:
    columns = ["start_time", "state", "work"]
    client.insert("sample_changes", rows, column_names=columns, settings=insert_settings(cluster))
