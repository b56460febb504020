"""Builds rollups of closed buckets from samples, then drops old samples. docs/storage.md explains why the sums are
always those of samples.

Any number of processes may build at the same time: each build has a number of its own, and queries read one of them. A
build counts when its row `built` is there, after all its rows; one that was killed before does not count.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import Clients
from icestream.rollups import CHANGES_SQL, DAY_S, LEVELS, MINUTES, Level, bucket_parameters
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
from sinks.rollup_builds import read_valid_builds
from sinks.rollup_changes import insert_settings
from sinks.rollup_tables import TABLES, build_number, fill, fill_parameters

GRACE_S = 600
"""A bucket is built so long after its end: batches of the bucket are stored then, except for late ones."""
QUIET_S = 300
"""A bucket that has changed is built again so long after its last change."""
_STARTED_S = 3600
"""A build that began so long ago and did not complete was killed."""
_IN_USE_S = 600
"""A query may read a build for so long after there is a newer one."""
_STEP_S = 20.0
_TOGETHER = 20_000_000
"""Samples of which hours are built together. Hours of more samples are built one by one."""
_LIMITS = {"max_threads": 2, "max_memory_usage": 2_000_000_000, "max_bytes_before_external_group_by": 400_000_000}
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
        samples = _samples_of_days(client, cluster)
        days = sorted(samples)
        try:
            for level in LEVELS:
                for buckets in together(due(client, level, days, ages, cluster), samples):
                    if stop.is_set():
                        return
                    build(client, *buckets, cluster=cluster, last_time_before_s=ages.samples_may_go)
                finish(client, level, ages, cluster)
                drop_unused(client, level, ages.now, cluster)
        finally:  # also where nothing can be built because the disk is full
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
    range_s = min(closed), max(closed) + level.bucket_s
    valid = read_valid_builds(client, level, *range_s)
    rows = client.query(CHANGES_SQL, parameters=bucket_parameters(level, *range_s)).result_rows
    changes = {row[0]: row[2:] for row in rows}
    begun = client.query(
        "SELECT toUnixTimestamp(start_time) FROM rollup_builds WHERE level = {level:String}"
        " GROUP BY start_time, build HAVING max(state != 'begun') = 0 AND max(noted_time) > now() - {started:UInt32}",
        parameters={"level": level.name, "started": _STARTED_S},
    ).result_rows
    others = {row[0] for row in begun}

    def waits(start: int) -> bool:
        is_open, last_change = changes.get(start, (0, 0))
        was_left = start < ages.samples_may_go and last_change + DAY_S <= ages.now  # by a job that ended in the middle
        return start in others or last_change + QUIET_S > ages.now or (is_open and not was_left)

    missing = [start for start in closed if start not in valid and not waits(start)]
    return [Bucket(level, start) for start in sorted(missing, reverse=True)]


def oldest(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> int:
    """Returns the start of the time for which rollups of a level are kept, in Unix seconds."""
    kept = kept_days(client, "rollup_builds", level.name, cluster)
    return ages.now - kept * DAY_S if kept else 0


def together(buckets: Sequence[Bucket], samples: Mapping[int, int]) -> Iterator[list[Bucket]]:
    """Yields buckets of one level in groups, each of one day, that are built together; they keep their order.

    `samples`: how many each day has, by its start.
    """
    for day, of_day in groupby(buckets, key=lambda bucket: bucket.start_unix_s // DAY_S * DAY_S):
        hour = samples.get(day, 0) // 24
        left, size = list(of_day), max(_TOGETHER // max(hour, 1), 1)
        yield from (left[first : first + size] for first in range(0, len(left), size))


def build(client: Client, *buckets: Bucket, cluster: Cluster = ONE_SERVER, last_time_before_s: int = 0) -> bool:
    """Computes the rollups of buckets of one level and day; returns whether all count. Raises the client's errors.

    `last_time_before_s`: samples before may soon be dropped, so it builds even from those that a job has not replaced
    completely.
    """
    level, first = buckets[0].level, time.time_ns()
    begun = {bucket.start_unix_s: build_number(first, bucket.start_unix_s) for bucket in buckets}
    _note(client, level, begun, "begun", {}, cluster)
    wait_for_replicas(client, cluster, "sample_changes", "samples")
    changes = _changes(client, buckets)
    at_work = {start for start, each in changes.items() if each.is_open and start >= last_time_before_s}
    builds = {start: number for start, number in begun.items() if start not in at_work}
    if not builds:
        return False
    for table, statement in fill(level, builds).items():
        client.command(
            statement,
            parameters=fill_parameters(level, builds),
            settings=insert_settings(cluster) | _LIMITS | (ON_EACH_SHARD if cluster.local else {}),
        )
        wait_for_replicas(client, cluster, table)  # the next table may be summed up from this one
    noted = {start: each.noted for start, each in changes.items()}
    _note(client, level, builds, "built", noted, cluster)
    return len(builds) == len(begun)


def finish(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> None:
    """Makes builds final whose samples may soon be dropped: the valid ones, and where samples went already the last.

    But not those of a day that was built or changed within a day: a job or a backlog may bring more of it.
    """
    rows = client.query(
        "SELECT toUnixTimestamp(start_time) AS start, maxIf(build, state = 'built') AS last,"
        " toUnixTimestamp(maxIf(noted_time, state = 'built')) FROM rollup_builds"
        " WHERE level = {level:String} AND start_time < toDateTime({before:UInt32}, 'UTC')"
        " GROUP BY start HAVING last > 0 AND max(state = 'final') = 0 ORDER BY start",
        parameters={"level": level.name, "before": max(ages.samples_may_go, 0)},
    ).result_rows
    if not rows:
        return
    first_day, end = rows[0][0] // DAY_S * DAY_S, (rows[-1][0] // DAY_S + 1) * DAY_S
    valid = read_valid_builds(client, level, first_day, end)
    changes = client.query(CHANGES_SQL, parameters=bucket_parameters(level, first_day, end)).result_rows
    filled = {start // DAY_S for start, *_, last in (*changes, *rows) if last + DAY_S > ages.now}
    numbers = {
        start: valid.get(start, last if start < ages.samples_went else 0)
        for start, last, _ in rows
        if start // DAY_S not in filled
    }
    if final := {start: number for start, number in numbers.items() if number}:
        _note(client, level, final, "final", {}, cluster)


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
    for table in (*TABLES[level], "rollup_builds"):
        if table != "series_seen":
            client.command(
                f"{delete_from(table, cluster)} WHERE {key} IN"
                " (SELECT toDateTime(arrayJoin({starts:Array(UInt32)}), 'UTC')) AND build IN {builds:Array(UInt64)}",
                parameters=unused,
                settings=ON_EVERY_HOST,
            )


class _Changes(NamedTuple):
    """The changes that are noted of a bucket."""

    noted: int
    is_open: bool
    """A job is at work there."""


def _changes(client: Client, buckets: Sequence[Bucket]) -> dict[int, _Changes]:
    """Returns the changes of buckets of one level by their start, if they have any."""
    parameters = bucket_parameters(
        buckets[0].level,
        min(bucket.start_unix_s for bucket in buckets),
        max(bucket.end_unix_s for bucket in buckets),
    )
    rows = client.query(CHANGES_SQL, parameters=parameters).result_rows
    return {int(start): _Changes(int(count), bool(is_open)) for start, count, is_open, _ in rows}


def _note(
    client: Client, level: Level, builds: Mapping[int, int], state: str, changes: Mapping[int, int], cluster: Cluster
) -> None:
    """Notes the state of builds, whose numbers are given by the start of their bucket, as are changes."""
    rows: list[list[Any]] = [
        [level.name, start, start + level.bucket_s, number, state, changes.get(start, 0)]
        for start, number in builds.items()
    ]
    columns = ["level", "start_time", "end_time", "build", "state", "changes"]
    client.insert("rollup_builds", rows, column_names=columns, settings=insert_settings(cluster))


def _samples_of_days(client: Client, cluster: Cluster) -> dict[int, int]:
    """Returns how many samples each day has, by the Unix seconds of its start; on a cluster, those of all replicas."""
    parts, database = "system.parts", "currentDatabase()"
    if cluster.local:
        parts, database = f"clusterAllReplicas({quoted(cluster.name)}, system, parts)", quoted(cluster.local)
    rows = client.query(
        f"SELECT partition, sum(rows) FROM {parts}"
        f" WHERE database = {database} AND table = 'samples' AND active AND rows > 0 GROUP BY partition"
    ).result_rows
    return {int(datetime.fromisoformat(day).replace(tzinfo=timezone.utc).timestamp()): int(n) for day, n in rows}
