"""Notes changes of rows in buckets whose rollups may have begun, so that queries do not read these any more.

A writer of rows notes a change after it; the builder (sinks/rollups/builder.py) first notes that a build begins, then
counts the changes, and then reads rows. So a build that has not read a change does not have it in its count either: it
is not valid once the change is noted. The rows of a batch count from when the batch is stored, which is still later.
A job deletes rows and inserts them again, so it notes that before and after; nothing is built in between.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import CHANGES_SQL, HOUR_S, OPERATION_MINUTES, REQUESTS, Level, bucket_parameters
from icestream.times import HOUR_NS
from sinks.clickhouse.cluster import INSERT_SETTINGS, ONE_SERVER, Cluster, of_all_replicas
from sinks.clickhouse.damaged_parts import whole_parts

_HOUR_MS = HOUR_S * 1000
REQUESTS_QUIET_S = 3600
"""How long after the last change of a bucket its rollups of operations are built again."""
NOTED_S = REQUESTS_QUIET_S / 2
_DAY_HOURS = 24
"""A span is taken to last at most this long (gateway/readers/otlp_spans.py)."""


def note_added(client: Client, times: Iterable[pa.ChunkedArray], cluster: Cluster = ONE_SERVER) -> None:
    """Notes that samples with these times (milliseconds) were added, for hours whose rollups may have begun."""
    begun_s = _begun(client, cluster)
    hours: set[int] = set()
    for column in times if begun_s else ():
        hours.update(np.unique(column.cast(pa.int64()).to_numpy() // _HOUR_MS).tolist())
    _note_added(client, hours, begun_s, "", cluster)


def note_requests(
    client: Client,
    intervals: Iterable[pa.Table],
    spans: Iterable[pa.Table],
    noted: dict[int, tuple[float, float]],
    cluster: Cluster = ONE_SERVER,
) -> None:
    """Notes that rows of `activity` and `spans` were added, for hours whose rollups of operations may have begun.

    An interval may belong to a request that began an hour before, and tell the operation of samples an hour after.
    `noted`: when this process has noted which hour, by its monotonic clock, which stands still while the machine is
    suspended, and by its wall clock, which may be set. Long spans that end all the time change all hours of a day each
    time, so an hour is noted again after NOTED_S by either: nothing of it is built before.
    """
    begun_s, now = _begun(client, cluster, OPERATION_MINUTES.name), (time.monotonic(), time.time())
    hours: set[int] = set()
    for table in intervals if begun_s else ():
        for hour in np.unique(_hours(table["start_time"])).tolist():
            hours.update((hour - 1, hour, hour + 1))
    for table in spans if begun_s else ():
        bounds = np.stack([_hours(table["start_time"]), _hours(table["end_time"])], axis=1)
        hours |= hours_of_spans(np.unique(bounds, axis=0).tolist())
    for hour, at in list(noted.items()):
        if not all(0 <= clock - before < NOTED_S for clock, before in zip(now, at, strict=True)):
            del noted[hour]
    hours = {hour for hour in hours - noted.keys() if 0 <= hour * HOUR_S < begun_s}
    _note_added(client, hours, begun_s, REQUESTS, cluster)
    noted |= dict.fromkeys(hours, now)


def hours_of_spans(bounds: Iterable[Sequence[int]]) -> set[int]:
    """Returns the hours whose rollups depend on spans with these first and last hours: a span may tell the operation of
    samples from its start to its end, and of what tasks do in the hour after it. One that ends before it starts, by the
    clock of its sender, is a request where it starts."""
    return {hour for first, last in bounds for hour in range(first, min(max(last, first), first + _DAY_HOURS) + 2)}


def note_requests_sql(hours: Iterable[int]) -> str:
    """Returns the INSERT ... SELECT, without WHERE, that notes that rows of `activity` or `spans` were added."""
    starts = [hour * HOUR_S for hour in sorted(hours)]
    return (
        "INSERT INTO sample_changes (start_time, state, work)"
        f" SELECT toDateTime(arrayJoin({starts}), 'UTC'), 'added', '{REQUESTS}'"
    )


def note_work_sql(state: str, start_unix_nano: int, end_unix_nano: int, of_operations: bool = False) -> str:
    """Returns the INSERT ... SELECT, without WHERE, that notes that a job has begun or ended to replace samples of a
    time range. `of_operations`: to replace activity, which rollups of the hours before and after have, too."""
    first_ms, last_ms, near = start_unix_nano // 10**6, -(-end_unix_nano // 10**6), int(of_operations)
    hours = [hour * HOUR_S for hour in range(first_ms // _HOUR_MS - near, last_ms // _HOUR_MS + 1 + near)]
    work = f"{REQUESTS if of_operations else ''}{first_ms}-{last_ms}"
    return (
        "INSERT INTO sample_changes (start_time, state, work)"
        f" SELECT toDateTime(arrayJoin({hours}), 'UTC'), '{state}', '{work}'"
    )


def insert_settings(cluster: Cluster = ONE_SERVER) -> dict[str, Any]:
    """Returns the settings of an insert that must not be taken for a repetition of another one."""
    token = {"async_insert": 0, "insert_deduplication_token": uuid.uuid4().hex}
    return token | (INSERT_SETTINGS if cluster.name else {})


def _begun(client: Client, cluster: Cluster, level: str = "") -> int:
    """Returns the end of the newest bucket whose rollups (of a level, or any) were begun, in Unix seconds; 0: none."""
    latest = (
        f"SELECT toUnixTimestamp(max(end_time)) FROM {of_all_replicas('rollup_builds', cluster)}"
        " WHERE {level:String} IN ('', level)"
    )
    settings = {"skip_unavailable_shards": 1} if cluster.name else None
    return int(client.query(latest, parameters={"level": level}, settings=settings).result_rows[0][0])


def _hours(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Returns the hours of times in nanoseconds."""
    hours: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy() // HOUR_NS
    return hours


def _note_added(client: Client, hours: Iterable[int], begun_s: int, work: str, cluster: Cluster) -> None:
    rows = [[hour * HOUR_S, "added", work] for hour in sorted(hours) if 0 <= hour * HOUR_S < begun_s]
    if rows:
        columns = ["start_time", "state", "work"]
        with whole_parts(client):
            client.insert("sample_changes", rows, column_names=columns, settings=insert_settings(cluster))


class Changes(NamedTuple):
    """The changes that are noted of a bucket."""

    noted: int = 0
    is_open: bool = False
    """A job is at work there."""
    last_unix_s: int = 0


def read_changes(client: Client, level: Level, from_unix_s: int, until_unix_s: int) -> dict[int, Changes]:
    """Returns the changes of the buckets of a time range by their start, if they have any."""
    parameters = bucket_parameters(level, from_unix_s, until_unix_s)
    rows = client.query(CHANGES_SQL, parameters=parameters).result_rows
    return {int(start): Changes(int(count), bool(is_open), int(last)) for start, count, is_open, last in rows}
