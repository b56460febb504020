"""Thins the requests of old days: rows of light requests go, and what is known of operations stays exact.

A day without operations that have many requests is left alone. Else its rollups of operations become final, as do those
of the days before and after it: thinning never changes their sums and percentiles. Heavy and slow requests are kept
with their whole traces (sinks/requests/kept_requests.py), and one trace in a hundred by its ID
(icestream/clickhouse/thinning.py). Samples all stay, with the names and operations of their spans.

A thinned day is final: jobs leave its requests alone, and what arrives for it is stored beside those that were kept.
If a day changes while what to keep is chosen and copied (sinks/requests/replace_requests.py), nothing of it goes.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import DAY_S, OPERATION_DAYS, OPERATION_HOURS, OPERATION_MINUTES
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, wait_for_every_host
from sinks.clickhouse.disk_room import DiskRoom
from sinks.clickhouse.migrate import check
from sinks.requests.kept_requests import choose_operations, choose_traces
from sinks.requests.replace_requests import TABLES, copies, copy_kept, newest_blocks, replace_day
from sinks.rollups.builds import note_builds, read_valid_builds
from sinks.rollups.changes import Changes, insert_settings, read_changes
from sinks.rollups.operation_tables import trace_ranges
from sinks.rollups.stored_days import date_of, rows_of_days
from sinks.rollups.unused_builds import KILLED_AFTER_S
from sinks.runner.kafka_clock import Now
from sinks.runner.periodic import repeat

_CHANGES = ("sample_changes", "rollup_builds")
_FINAL_LEVELS = (OPERATION_MINUTES, OPERATION_HOURS, OPERATION_DAYS)
"""Those that are not built again once rows are gone; others are summed up from these."""
log = logging.getLogger(__name__)


def thin_for_ever(clients: Clients, request_days: int, now: Now, room: DiskRoom, stop: threading.Event) -> None:
    """Thins old days until `stop` is set. In a thread of its own: a day of a large fleet takes hours, and rollups must
    not wait for that. Does nothing while the time is not known, or the disk is full."""

    def step(stop: threading.Event) -> None:
        if (now_unix_s := now()) is not None:
            room.check()
            cluster = check(clients.get(), clients.dsn)
            thin_requests(clients.get(), int(now_unix_s), request_days, stop, cluster)

    repeat("thinning", step, clients, stop)


def thin_requests(
    client: Client, now_unix_s: int, request_days: int, stop: threading.Event, cluster: Cluster = ONE_SERVER
) -> bool:
    """Thins one of the days that ended `request_days` and a day ago and have not changed for a day, the oldest first.
    Returns whether there was one. Raises the client's errors and DiskFullError.
    """
    rows = sorted(rows_of_days(client, cluster, *TABLES, "trace_samples"))
    quiet = now_unix_s - DAY_S
    days = _due(client, [day for day in rows if day + (2 + request_days) * DAY_S <= now_unix_s], quiet)
    settled = _settled(client, rows, quiet) if days else set()
    many: dict[int, bool] = {}
    for day in days:
        near = [each for each in (day - DAY_S, day, day + DAY_S) if each in rows]
        if not settled.issuperset(near):
            continue
        for each in near:
            if each not in many:
                many[each] = choose_operations(client, each, cluster)
        if any(many[each] for each in near):
            return _thin(client, day, near, quiet, stop, cluster)
        _note(client, day, "whole", cluster)
    return False


def _thin(
    client: Client, day: int, near: Sequence[int], quiet_unix_s: int, stop: threading.Event, cluster: Cluster
) -> bool:
    """Thins a day; returns False where it had to stop, or something changed meanwhile. `near`: the day, and those
    before and after it, as far as they have rows."""
    changes = _changes(client, near)
    wait_for_every_host(client, cluster, *_CHANGES, *TABLES, "trace_samples")  # rows are stored before their change is
    newest = newest_blocks(client, day, cluster)

    def has_changed() -> bool:
        wait_for_every_host(client, cluster, *_CHANGES, *TABLES)
        is_settled = _settled(client, near, quiet_unix_s).issuperset(near)
        return not is_settled or (_changes(client, near), newest_blocks(client, day, cluster)) != (changes, newest)

    _make_final(client, near, cluster)
    for each in near:
        for traces in _ranges(client, each, day, stop, cluster):
            choose_traces(client, each, traces, cluster)
    wait_for_every_host(client, cluster, "kept_traces")
    with copies(client, cluster) as copied:
        for traces in _ranges(client, day, day, stop, cluster):
            copy_kept(client, day, traces, copied, cluster)
        wait_for_every_host(client, cluster, *copied.values())
        if stop.is_set() or has_changed():
            return False
        _note(client, day, "thinning", cluster)
        wait_for_every_host(client, cluster, "thinned_days")  # queries must know before rows go
        if has_changed():  # a job that has not noted its work until here sees that the day is final
            return False
        replace_day(client, day, copied, cluster)
    _note(client, day, "thinned", cluster)
    log.info("thinned the requests of %s", date_of(day))
    return True


def _ranges(
    client: Client, day: int, thinned: int, stop: threading.Event, cluster: Cluster
) -> Iterator[dict[str, str]]:
    """Yields ranges of the traces of a day until `stop` is set, and notes that the day `thinned` is worked on: else
    others would take its thinning for killed."""
    for traces in trace_ranges(client, day, DAY_S):
        if stop.is_set():
            return
        _note(client, thinned, "choosing", cluster)
        yield traces


def _due(client: Client, days: Sequence[int], quiet_unix_s: int) -> list[int]:
    """Returns those of these days that nobody has thinned or is at work on. One that was left alone is looked at again
    when its rows have changed."""
    if not days:
        return []
    rows = client.query(
        "SELECT toString(day), argMax(state, noted_time), toUnixTimestamp(max(noted_time)),"
        " max(noted_time) > now() - {killed:UInt32} FROM thinned_days GROUP BY day",
        parameters={"killed": KILLED_AFTER_S},
    ).result_rows
    noted = {day: (state, at, lately) for day, state, at, lately in rows}
    changes = _changes(client, days)

    def is_due(day: int) -> bool:
        state, at, lately = noted.get(date_of(day), ("", 0, False))
        if state == "whole":
            return bool(at < changes.get(day, Changes()).last_unix_s <= quiet_unix_s)
        return state != "thinned" and not lately

    return [day for day in days if is_due(day)]


def _settled(client: Client, days: Sequence[int], quiet_unix_s: int) -> set[int]:
    """Returns those of these days whose rollups of operations are complete, neither built nor changed lately, and where
    no job is at work."""
    changes = _changes(client, days)
    built = client.query(
        "SELECT intDiv(toUnixTimestamp(start_time), {day:UInt32}) * {day:UInt32} AS at,"
        " toUnixTimestamp(max(noted_time)) FROM rollup_builds"
        " WHERE state = 'built' AND level IN {levels:Array(String)} GROUP BY at",
        parameters={"day": DAY_S, "levels": [level.name for level in _FINAL_LEVELS]},
    ).result_rows
    at_work = {day for day, change in changes.items() if change.is_open or change.last_unix_s > quiet_unix_s}
    settled = set(days) - at_work - {int(day) for day, at in built if at > quiet_unix_s}
    for level in _FINAL_LEVELS:
        valid = read_valid_builds(client, level, days[0], days[-1] + DAY_S)
        settled = {day for day in settled if valid.keys() >= set(range(day, day + DAY_S, level.bucket_s))}
    return settled


def _changes(client: Client, days: Sequence[int]) -> dict[int, Changes]:
    """Returns the changes of days, which are in order, by their start; of those that have some."""
    return read_changes(client, OPERATION_DAYS, days[0], days[-1] + DAY_S)


def _make_final(client: Client, days: Sequence[int], cluster: Cluster) -> None:
    """From now on the rollups of these days are not built again: not all of their rows will be there."""
    for level in _FINAL_LEVELS:
        for day in days:
            note_builds(client, level, read_valid_builds(client, level, day, day + DAY_S), "final", cluster=cluster)
    wait_for_every_host(client, cluster, "rollup_builds")


def _note(client: Client, day: int, state: str, cluster: Cluster) -> None:
    rows = [[datetime.fromtimestamp(day, timezone.utc).date(), state]]
    client.insert("thinned_days", rows, column_names=["day", "state"], settings=insert_settings(cluster))
