"""Builds rollups of closed buckets, then drops old samples. docs/storage.md explains why the sums are always those of
the rows.

Any number of processes may build at the same time: each build has a number of its own, and queries read one of them. A
build counts when its row `built` is there, after all its rows; one that was killed before does not count.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import (
    DAY_S,
    HOUR_S,
    LEVELS,
    OPERATION_LEVELS,
    OPERATION_MINUTES,
    Level,
)
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, wait_for_replicas
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.clickhouse.disk_room import DiskRoom
from sinks.clickhouse.migrate import check
from sinks.clickhouse.retention import kept_days, sample_days
from sinks.rollups import operation_tables
from sinks.rollups.buckets import Bucket, grouped, one_by_one
from sinks.rollups.builds import note_builds, read_sources, read_valid_builds
from sinks.rollups.changes import REQUESTS_QUIET_S, Changes, insert_settings, read_changes
from sinks.rollups.old_samples import drop_old_samples
from sinks.rollups.stored_days import days_of_builds, rows_of_days
from sinks.rollups.tables import build_number, fill, fill_parameters, fill_settings
from sinks.rollups.unused_builds import KILLED_AFTER_S, drop_unused_builds
from sinks.runner.kafka_clock import Now
from sinks.runner.periodic import note_failure, repeat

GRACE_S = 600
"""How long after its end a bucket is built: all its batches but late ones are stored then."""
QUIET_S = 300
"""How long after its last change a bucket is built again."""
_NAME = "rollups"
"""In the log and in metrics."""
_OPERATIONS_S = 20.0
"""A step spends this long on each level of operations, so that samples do not wait for a backlog of hours."""
_WAIT_S = 7 * DAY_S
"""Hours and days that no sink has built yet are still built for this long after their rows are gone."""
log = logging.getLogger(__name__)


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

    def left_before(self, level: Level) -> int:
        """Returns the moment before which buckets do not wait for a job that has been quiet for a day.

        Rollups of operations can only be built while none of their rows may be dropped (`oldest`), so they need a day
        in which they do not wait.
        """
        return self.samples_may_go + DAY_S if level.of_operations and self.samples_may_go else self.samples_may_go

    def is_quiet(self, level: Level, changed_unix_s: int) -> bool:
        """Whether the last change of a bucket is long enough ago to build it."""
        return changed_unix_s + (REQUESTS_QUIET_S if level.of_operations else QUIET_S) <= self.now

    @property
    def sources_complete(self) -> int:
        """The moment before which all builds exist that coarser rollups may be summed up from: `finish` has chosen
        the last ones."""
        return self.samples_went - 2 * DAY_S


class Rollups:
    """Builds what is due, for as long as the sinks run. Used by one thread."""

    def __init__(
        self,
        clients: Clients,
        operations_s: float = _OPERATIONS_S,
        now: Now = time.time,
        room: DiskRoom | None = None,
    ) -> None:
        """`operations_s`: see _OPERATIONS_S; `room`: of the disk; None: it need not be asked about."""
        self._clients = clients
        self._operations_s = operations_s
        self._now = now
        self._room = room or DiskRoom(_NAME, None, 0)

    def run(self, stop: threading.Event) -> None:
        """Blocks until `stop` is set."""
        repeat(_NAME, self.step, self._clients, stop)  # after an error, queries read samples until the next step

    def step(self, stop: threading.Event, now_unix_s: int | None = None) -> None:
        """Builds the buckets that are due now, newest first, and drops samples that are too old. Does nothing while the
        time is not known.

        Raises MigrationError, DiskFullError and the client's errors.
        """
        now = self._now() if now_unix_s is None else now_unix_s
        if now is None:  # so it is not known either which buckets have ended, and which builds were killed
            return
        client = self._clients.get()
        cluster = check(client, self._clients.dsn)
        ages = Ages.at(client, int(now), cluster)
        samples = rows_of_days(client, cluster, "samples")
        traced = rows_of_days(client, cluster, "activity", "entry_spans")
        has_operations = traced or operation_tables.has_span_names(client)
        rows = rows_of_days(client, cluster, *operation_tables.SOURCE_TABLES) if has_operations else {}
        try:
            self._room.check()
            for level in LEVELS:
                self._step_level(level, samples, ages, cluster, stop)
            for level in OPERATION_LEVELS:
                try:
                    self._step_level(level, rows, ages, cluster, stop)
                except Exception as error:  # the other levels, and the drop of samples, do not wait for this one
                    note_failure(_NAME, self._clients, error)
        finally:  # also where nothing can be built because the disk is full
            if ages.samples_went:
                self._drop_old_samples(sorted(samples), ages, cluster)

    def _step_level(
        self, level: Level, rows: Mapping[int, int], ages: Ages, cluster: Cluster, stop: threading.Event
    ) -> None:
        """`rows`: how many rows each day has of those that the level is summed up from.

        An hour of operations that cannot be built does not hold up the others; it is tried again when its build counts
        as killed. Raises the client's errors for other levels.
        """
        client = self._clients.get()
        until = time.monotonic() + self._operations_s if level.of_operations else math.inf
        if level.source and ages.samples_went:  # a day may be built when its rows have just gone
            since = ages.samples_went - _WAIT_S
            rows = dict.fromkeys(days_of_builds(client, level.source, since), 0) | dict(rows)
        for buckets in self._groups(due(client, level, sorted(rows), ages, cluster), rows):
            if stop.is_set():
                return
            try:
                build(client, *buckets, cluster=cluster, ages=ages, stop=stop)
            except Exception as error:
                if not level.of_operations:
                    raise
                note_failure(_NAME, self._clients, error)
                client = self._clients.get()
            if time.monotonic() >= until:
                break
        finish(client, level, ages, cluster)
        drop_unused_builds(client, level, ages.now, cluster)

    def _drop_old_samples(self, days: Sequence[int], ages: Ages, cluster: Cluster) -> None:
        client = self._clients.get()
        levels = [(each, oldest(client, each, ages, cluster)) for each in LEVELS]
        if dropped := drop_old_samples(client, days, ages.samples_went, levels, cluster):
            log.info("dropped %d days of samples, whose rollups are complete", len(dropped))

    def _groups(self, buckets: Sequence[Bucket], rows: Mapping[int, int]) -> Iterator[list[Bucket]]:
        """Yields buckets of one level in the groups that are built together. `rows`: how many each day has."""
        for group in grouped(buckets, rows):
            if group[0].level == OPERATION_MINUTES and len(group) > 1:
                starts = [bucket.start_unix_s for bucket in group]
                client = self._clients.get()  # another one after an error
                yield from one_by_one(group, operation_tables.hours_with_rows(client, starts))
            else:
                yield group


def due(client: Client, level: Level, days: list[int], ages: Ages, cluster: Cluster = ONE_SERVER) -> list[Bucket]:
    """Returns the buckets to build, newest first. `days`: those with rows, in Unix seconds."""
    if not days:
        return []
    first = oldest(client, level, ages, cluster)
    grace_s = GRACE_S + (HOUR_S if level.of_operations else 0)  # the requests of an hour may end in the next one
    closed = [
        start
        for day in days
        for start in range(day, day + DAY_S, level.bucket_s)
        if start + level.bucket_s + grace_s <= ages.now and start >= first
    ]
    if not closed:
        return []
    range_s = min(closed), max(closed) + level.bucket_s
    valid = read_valid_builds(client, level, *range_s)
    changes = read_changes(client, level, *range_s)
    begun = client.query(
        "SELECT toUnixTimestamp(start_time) FROM rollup_builds WHERE level = {level:String}"
        " GROUP BY start_time, build HAVING max(state != 'begun') = 0 AND max(noted_time) > now() - {started:UInt32}",
        parameters={"level": level.name, "started": KILLED_AFTER_S},
    ).result_rows
    others = {row[0] for row in begun}

    def waits(start: int) -> bool:
        each = changes.get(start, Changes())
        # By a job that ended in the middle.
        was_left = start < ages.left_before(level) and each.last_unix_s + DAY_S <= ages.now
        return start in others or not ages.is_quiet(level, each.last_unix_s) or (each.is_open and not was_left)

    missing = [start for start in closed if start not in valid and not waits(start)]
    return [
        Bucket(level, start)
        for start in sorted(read_sources(client, level, missing, ages.sources_complete), reverse=True)
    ]


def oldest(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> int:
    """Returns the moment from which on rollups of a level are built, in Unix seconds: from which on they are kept, and
    where they are summed up from activity and spans, from which on none of these may be gone, as ClickHouse drops these
    by age."""
    kept = kept_days(client, "rollup_builds", level.name, cluster)
    first = ages.now - kept * DAY_S if kept else 0
    if level.of_operations and level.source is None and (kept := kept_days(client, "activity", cluster=cluster)):
        return max(first, ages.now - (kept - 1) * DAY_S)  # the day before has spans of its requests
    return first


def build(
    client: Client,
    *buckets: Bucket,
    cluster: Cluster = ONE_SERVER,
    ages: Ages = Ages(0, 0, 0),
    stop: threading.Event | None = None,
) -> bool:
    """Computes the rollups of buckets of one level and day; returns whether all count. Raises the client's errors.
    Once `stop` is set, it gives up a build that takes several statements.

    It sums up rows that may soon be dropped even where a job has not replaced them completely. It leaves out rollups of
    operations that have just changed, because not all later changes are noted.
    """
    level, first = buckets[0].level, time.time_ns()
    begun = {bucket.start_unix_s: build_number(first, bucket.start_unix_s) for bucket in buckets}
    note_builds(client, level, begun, "begun", {}, cluster)
    read = (*operation_tables.SOURCE_TABLES, "series") if level.of_operations else ("samples",)
    wait_for_replicas(client, cluster, "sample_changes")
    changes = read_changes(client, level, min(begun), max(begun) + level.bucket_s)
    wait_for_replicas(client, cluster, *read)  # the rows of these changes, which are stored before them
    left_before, may_change = ages.left_before(level), level.of_operations and ages.now > 0
    at_work = {
        start
        for start, each in changes.items()
        if (each.is_open and start >= left_before) or (may_change and not ages.is_quiet(level, each.last_unix_s))
    }
    sources = read_sources(client, level, begun.keys() - at_work, ages.sources_complete)
    builds = {start: number for start, number in begun.items() if start in sources}
    if not builds:
        return False
    if level == OPERATION_MINUTES:
        # Each alone: the operation of a span must not depend on the other hours.
        for hour in sorted(operation_tables.hours_with_rows(client, builds)):
            for number, traces in enumerate(operation_tables.trace_ranges(client, hour)):
                if stop is not None and stop.is_set():
                    return False
                if number:  # so that nobody takes it for killed, however long all ranges take
                    note_builds(client, level, {hour: builds[hour]}, "begun", {}, cluster)
                _fill(client, level, {hour: builds[hour]}, traces, cluster)
    else:
        numbers = sorted(number for numbers in sources.values() for number in numbers)
        _fill(client, level, builds, {"sources": numbers}, cluster)
    noted = {start: each.noted for start, each in changes.items()}
    note_builds(client, level, builds, "built", noted, cluster)
    return len(builds) == len(begun)


def _fill(client: Client, level: Level, builds: Mapping[int, int], of: Mapping[str, Any], cluster: Cluster) -> None:
    """Writes the rollups of buckets. `builds`: by the start of the bucket; `of`: parameters of what they are summed up
    from, the builds of a finer level (`sources`) or a range of traces."""
    parameters = {**fill_parameters(level, builds), **of}
    settings = insert_settings(cluster) | operation_tables.LIMITS | fill_settings(level, cluster)
    for table, statement in fill(level, builds, settings).items():
        with whole_parts(client):
            client.command(statement, parameters=parameters)
        wait_for_replicas(client, cluster, table)  # the next table may be summed up from this one


def finish(client: Client, level: Level, ages: Ages, cluster: Cluster = ONE_SERVER) -> None:
    """Makes the builds of buckets final whose samples may soon be dropped: the valid build of a bucket, or its last one
    where samples are gone already.

    It leaves out days that were built or changed in the last 24 hours: a job or a backlog may bring more of them.
    """
    if ages.samples_may_go <= 0:  # none are ever dropped
        return
    rows = client.query(
        "SELECT toUnixTimestamp(start_time) AS start, maxIf(build, state = 'built') AS last,"
        " toUnixTimestamp(maxIf(noted_time, state = 'built')) FROM rollup_builds"
        " WHERE level = {level:String} AND start_time < toDateTime({before:UInt32}, 'UTC')"
        " GROUP BY start HAVING last > 0 AND max(state = 'final') = 0 ORDER BY start",
        parameters={"level": level.name, "before": ages.samples_may_go},
    ).result_rows
    if not rows:
        return
    first_day, end = rows[0][0] // DAY_S * DAY_S, (rows[-1][0] // DAY_S + 1) * DAY_S
    valid = read_valid_builds(client, level, first_day, end)
    last_changes = [(start, each.last_unix_s) for start, each in read_changes(client, level, first_day, end).items()]
    last_builds = [(start, built) for start, _, built in rows]
    filled = {start // DAY_S for start, last in last_changes + last_builds if last + DAY_S > ages.now}
    numbers = {
        start: valid.get(start, last if start < ages.samples_went else 0)
        for start, last, _ in rows
        if start // DAY_S not in filled
    }
    if final := {start: number for start, number in numbers.items() if number}:
        note_builds(client, level, final, "final", {}, cluster)
