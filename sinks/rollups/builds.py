"""Reads which builds of rollups are valid, and notes their states."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import BUILDS_SQL, CHANGED_HOURS_SQL, Level, bucket_parameters, valid_builds
from sinks.clickhouse.cluster import ONE_SERVER, Cluster
from sinks.rollups.changes import insert_settings


def read_valid_builds(client: Client, level: Level, start_unix_s: int, end_unix_s: int) -> dict[int, int]:
    """Returns the number of the build to read of each bucket that lies in or reaches into a time range, by the bucket's
    start, in order; of buckets that have one. Raises the client's errors."""
    parameters = bucket_parameters(level, start_unix_s, end_unix_s)
    rows = client.query(BUILDS_SQL, parameters=parameters).result_rows
    changes = {row[0]: row[1] for row in client.query(CHANGED_HOURS_SQL, parameters=parameters).result_rows}
    of_level = [(start, number, final, known) for name, start, number, final, known in rows if name == level.name]
    valid = valid_builds(of_level, changes, level)
    return {start: build.number for start, build in valid.items()}


def read_sources(client: Client, level: Level, starts: Collection[int], complete_s: int = 0) -> dict[int, list[int]]:
    """Returns the valid builds that buckets of a level are summed up from, by the start of the bucket; of those buckets
    that have them for all of their time. A level that is summed up from rows needs none. Raises the client's errors.

    `complete_s`: before, no source is built any more, so buckets are summed up from those that there are.
    """
    if level.source is None or not starts:
        return {start: [] for start in starts}
    valid = read_valid_builds(client, level.source, min(starts), max(starts) + level.bucket_s)
    parts = {start: range(start, start + level.bucket_s, level.source.bucket_s) for start in starts}
    return {
        start: [valid[part] for part in of_bucket if part in valid]
        for start, of_bucket in parts.items()
        if all(part in valid or part < complete_s for part in of_bucket) and any(part in valid for part in of_bucket)
    }


def note_builds(
    client: Client,
    level: Level,
    builds: Mapping[int, int],
    state: str,
    changes: Mapping[int, int] = MappingProxyType({}),
    cluster: Cluster = ONE_SERVER,
) -> None:
    """Notes the state of builds. `builds` and `changes`: the number of a build, and of its changes, by bucket start."""
    rows: list[list[Any]] = [
        [level.name, start, start + level.bucket_s, number, state, changes.get(start, 0)]
        for start, number in builds.items()
    ]
    columns = ["level", "start_time", "end_time", "build", "state", "changes"]
    client.insert("rollup_builds", rows, column_names=columns, settings=insert_settings(cluster))
