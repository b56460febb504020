"""Builds rollups of closed buckets from samples, then drops old samples. docs/storage.md explains why the sums are
always those of samples.

Any number of processes may build at the same time: each build has a number of its own, and queries read one of them. A
build counts when its row `built` is there, after all its rows; one that was killed before does not count.
"""

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import Clients
from icestream.rollups import (
    CHANGES_SQL,
    DAY_S,
    DAYS,
    HOURS,
    LEVELS,
    MINUTES,
    VALID_BUILDS_SQL,
    Level,
    bucket_parameters,
)
from sinks import metrics
from sinks.cluster import (
    ON_EACH_SHARD,
    ON_EVERY_HOST,
    ONE_SERVER,
    Cluster,
    delete_from,
    quoted,
    wait_for_replicas,
)
from sinks.migrate import check
from sinks.old_samples import drop_old_samples
from sinks.retention import kept_days, sample_days
from sinks.rollup_changes import insert_settings

GRACE_S = 600
"""A bucket is built so long after its end: batches of the bucket are stored then, except for late ones."""
QUIET_S = 300
"""A bucket that has changed is built again so long after its last change."""
_STARTED_S = 3600
"""A build that began so long ago and did not complete was killed."""
_IN_USE_S = 600
"""A query may read a build for so long after there is a newer one."""
_STEP_S = 20.0
_LIMITS = {"max_threads": 2, "max_memory_usage": 2_000_000_000, "max_bytes_before_external_group_by": 400_000_000}
_SUMS = "sum(count) AS count_, sum(value) AS value_, {build:UInt64}"
_START = "toDateTime({start:UInt32}, 'UTC')"
_OF_BUCKET = (
    "WHERE time >= fromUnixTimestamp64Milli(toInt64({start:UInt32}) * 1000, 'UTC')"
    " AND time < fromUnixTimestamp64Milli(toInt64({end:UInt32}) * 1000, 'UTC') GROUP BY ALL"
)
_NOT_ZERO = "HAVING count_ != 0 OR value_ != 0"
_FILL = {
    MINUTES: {
        "service_minutes": f"SELECT profile_type, service, toStartOfMinute(time), {_SUMS} FROM samples {_OF_BUCKET}"
        f" {_NOT_ZERO}",
    },
    HOURS: {
        "series_hours": f"SELECT profile_type, service, {_START}, series_id, {_SUMS} FROM samples {_OF_BUCKET}"
        f" {_NOT_ZERO}",
        "service_stack_hours": f"SELECT profile_type, service, {_START}, stack_id, {_SUMS} FROM samples {_OF_BUCKET}"
        f" {_NOT_ZERO}",
        "series_seen": f"SELECT DISTINCT {_START}, profile_type, series_id FROM series_hours"
        f" WHERE start_time = {_START} AND build = {{build:UInt64}}",
    },
    DAYS: {
        "series_stack_days": f"SELECT profile_type, service, {_START}, stack_id, series_id, {_SUMS} FROM samples"
        f" {_OF_BUCKET} {_NOT_ZERO}",
        "service_stack_days": f"SELECT profile_type, service, {_START}, stack_id, {_SUMS} FROM series_stack_days"
        f" WHERE start_time = {_START} AND build = {{build:UInt64}} GROUP BY ALL {_NOT_ZERO}",
    },
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bucket:
    """A bucket of a level."""

    level: Level
    start_unix_s: int

    @property
    def end_unix_s(self) -> int:
        return self.start_unix_s + self.level.bucket_s


@dataclass(frozen=True)
class Ages:
    """What is too old at a moment, in Unix seconds; 0: nothing is."""

    now: int
    samples_may_go: int
    """Samples before may be dropped within a day: now their rollups must be final."""
    samples_went: int
    """Samples before may be incomplete."""

    @classmethod
    def at(cls, client: Client, now_unix_s: int, cluster: Cluster = ONE_SERVER) -> "Ages":
        days = sample_days(client, cluster)
        return cls(now_unix_s, now_unix_s - (days - 1) * DAY_S if days else 0, now_unix_s - days * DAY_S if days else 0)


class Rollups:
    """Builds what is due, for as long as the sinks run. Used by one thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def run(self, stop: threading.Event) -> None:
        """Blocks until `stop` is set."""
        while not stop.wait(_STEP_S):
            try:
                self.step(stop)
            except Exception as error:  # the next step tries again; until then queries read samples
                self._clients.discard()
                metrics.FAILURES.labels("rollups").inc()
                log.error("rollups: %s", error)
        self._clients.discard()

    def step(self, stop: threading.Event, now_unix_s: int | None = None) -> None:
        """Builds the buckets that are due now, newest first, and drops samples that are too old.

        Raises MigrationError and the client's errors.
        """
        client = self._clients.get()
        cluster = check(client, self._clients.dsn)
        ages = Ages.at(client, int(time.time()) if now_unix_s is None else now_unix_s, cluster)
        days = _days_with_samples(client, cluster)
        for level in LEVELS:
            for bucket in due(client, level, days, ages, cluster):
                if stop.is_set():
                    return
                build(client, bucket, cluster, last_time=bucket.start_unix_s < ages.samples_may_go)
            finish(client, level, ages, cluster)
            drop_unused(client, level, ages.now, cluster)
        levels = [(each, oldest(client, each, ages, cluster)) for each in LEVELS]
        if dropped := drop_old_samples(client, days, ages.samples_went, levels, cluster):
            log.info("dropped %d days of samples, whose rollups are complete", len(dropped))


def due(client: Client, level: Level, days: list[int], ages: Ages, cluster: Cluster = ONE_SERVER) -> list[Bucket]:
    """Returns the buckets to build, newest first. `days`: those with samples, in Unix seconds."""
    first = oldest(client, level, ages, cluster)
    closed = [
        start
        for day in days
        for start in range(day, day + DAY_S, level.bucket_s)
        if start + level.bucket_s + GRACE_S <= ages.now and start >= first
    ]
    if not closed:
        return []
    parameters = bucket_parameters(level, min(closed), max(closed) + level.bucket_s)
    valid = {row[0] for row in client.query(VALID_BUILDS_SQL, parameters=parameters).result_rows}
    changes = {row[0]: row[2:] for row in client.query(CHANGES_SQL, parameters=parameters).result_rows}
    begun = client.query(
        "SELECT toUnixTimestamp(start_time) FROM rollup_builds WHERE level = {level:String}"
        " GROUP BY start_time, build HAVING max(state != 'begun') = 0 AND max(noted_time) > now() - {started:UInt32}",
        parameters={"level": level.name, "started": _STARTED_S},
    ).result_rows
    others = {row[0] for row in begun}

    def waits(start: int) -> bool:
        is_open, last_change = changes.get(start, (0, 0))
        return start >= ages.samples_may_go and (start in others or is_open or last_change + QUIET_S > ages.now)

    missing = [start for start in closed if start not in valid and not waits(start)]
    return [Bucket(level, start) for start in sorted(missing, reverse=True)]


def oldest(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> int:
    """Returns the start of the time for which rollups of a level are kept, in Unix seconds."""
    kept = kept_days(client, "rollup_builds", level.name, cluster)
    return ages.now - kept * DAY_S if kept else 0


def build(client: Client, bucket: Bucket, cluster: Cluster = ONE_SERVER, last_time: bool = False) -> bool:
    """Computes the rollups of a bucket; returns whether they count. Raises the client's errors.

    `last_time`: the samples may soon be dropped, so it builds even from those that a job has not replaced completely.
    """
    number = time.time_ns()
    _note(client, bucket, number, "begun", 0, cluster)
    wait_for_replicas(client, cluster, "sample_changes", "samples")
    changes, is_open = _changes(client, bucket)
    if is_open and not last_time:
        return False
    parameters = {"start": bucket.start_unix_s, "end": bucket.end_unix_s, "build": number}
    for table, select in _FILL[bucket.level].items():
        columns = "" if table == "series_seen" else _columns(table)
        client.command(
            f"INSERT INTO {table} {columns} {select}",
            parameters=parameters,
            settings=insert_settings(cluster) | _LIMITS | (ON_EACH_SHARD if cluster.local else {}),
        )
        wait_for_replicas(client, cluster, table)  # the next table may be summed up from this one
    _note(client, bucket, number, "built", changes, cluster)
    return True


def finish(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> None:
    """Makes builds final whose samples may soon be dropped: the valid ones, and where samples went already the last."""
    rows = client.query(
        "SELECT toUnixTimestamp(start_time) AS start, maxIf(build, state = 'built') AS last FROM rollup_builds"
        " WHERE level = {level:String} AND start_time < toDateTime({before:UInt32}, 'UTC')"
        " GROUP BY start HAVING last > 0 AND max(state = 'final') = 0 ORDER BY start",
        parameters={"level": level.name, "before": max(ages.samples_may_go, 0)},
    ).result_rows
    if not rows:
        return
    parameters = bucket_parameters(level, rows[0][0], rows[-1][0] + level.bucket_s)
    valid = {row[0]: row[1] for row in client.query(VALID_BUILDS_SQL, parameters=parameters).result_rows}
    for start, last in rows:
        number = valid.get(start, last if start < ages.samples_went else 0)
        if number:
            _note(client, Bucket(level, start), number, "final", 0, cluster)


def drop_unused(client: Client, level: Level, now_unix_s: int, cluster: Cluster = ONE_SERVER) -> None:
    """Deletes the rows of builds that were killed, or that have been followed by another one for a while."""
    rows = client.query(
        "SELECT start, groupArray((final, complete, build, noted)) AS builds FROM"
        " (SELECT toUnixTimestamp(start_time) AS start, build, max(state = 'final') AS final,"
        "  max(state != 'begun') AS complete, toUnixTimestamp(max(noted_time)) AS noted"
        "  FROM rollup_builds WHERE level = {level:String} GROUP BY start, build)"
        " GROUP BY start HAVING count() > 1 OR min(complete) = 0",
        parameters={"level": level.name},
    ).result_rows
    starts, numbers = [], []
    for start, builds in rows:
        *others, best = sorted(builds)
        followed = best[1] and best[3] + _IN_USE_S < now_unix_s
        for _, complete, number, noted in (*others, *(() if best[1] else (best,))):
            if (followed and complete) or (not complete and noted + _STARTED_S < now_unix_s):
                starts.append(start)
                numbers.append(number)
    if not numbers:
        return
    unused = {"starts": sorted(set(starts)), "builds": numbers}
    key = "toStartOfHour(start_time)" if level is MINUTES else "start_time"
    for table in (*_FILL[level], "rollup_builds"):
        if table != "series_seen":
            client.command(
                f"{delete_from(table, cluster)} WHERE {key} IN"
                " (SELECT toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC')) AND build IN {builds:Array(UInt64)}",
                parameters=unused,
                settings=ON_EVERY_HOST,
            )


def _changes(client: Client, bucket: Bucket) -> tuple[int, bool]:
    """Returns how many changes of the bucket are noted, and whether a job is at work there."""
    parameters = bucket_parameters(bucket.level, bucket.start_unix_s, bucket.end_unix_s)
    rows = client.query(CHANGES_SQL, parameters=parameters).result_rows
    return (int(rows[0][1]), bool(rows[0][2])) if rows else (0, False)


def _note(client: Client, bucket: Bucket, number: int, state: str, changes: int, cluster: Cluster) -> None:
    row: list[Any] = [bucket.level.name, bucket.start_unix_s, bucket.end_unix_s, number, state, changes]
    columns = ["level", "start_time", "end_time", "build", "state", "changes"]
    client.insert("rollup_builds", [row], column_names=columns, settings=insert_settings(cluster))


def _columns(table: str) -> str:
    keys = {"service_minutes": "", "series_hours": "series_id, ", "series_stack_days": "stack_id, series_id, "}
    return f"(profile_type, service, start_time, {keys.get(table, 'stack_id, ')}count, value, build)"


def _days_with_samples(client: Client, cluster: Cluster) -> list[int]:
    """Returns the days with samples, as Unix seconds of their start."""
    parts, database = "system.parts", "currentDatabase()"
    if cluster.local:
        parts, database = f"clusterAllReplicas({quoted(cluster.name)}, system, parts)", quoted(cluster.local)
    rows = client.query(
        f"SELECT DISTINCT partition FROM {parts}"
        f" WHERE database = {database} AND table = 'samples' AND active AND rows > 0"
    ).result_rows
    return sorted(int(datetime.fromisoformat(day).replace(tzinfo=timezone.utc).timestamp()) for (day,) in rows)
