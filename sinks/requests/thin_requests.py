"""Thins the requests of old days: rows of light requests go, and what is known of operations stays exact.

A day without operations that have many requests is left alone. Else its rollups of operations become final, as do those
of the days before and after it: thinning never changes their sums and percentiles. Heavy and slow requests are kept
with their whole traces (sinks/requests/kept_requests.py), and one trace in a hundred by its ID
(icestream/clickhouse/thinning.py). Samples all stay, with the names and operations of their spans.

If a day changes while it is chosen what to keep, nothing of it is deleted. On a cluster, it is chosen from the rows of
all shards, and each shard deletes its own (sinks/requests/delete_requests.py).
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.rollups import DAY_S, OPERATION_DAYS, OPERATION_HOURS, OPERATION_MINUTES
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, wait_for_every_host
from sinks.requests.delete_requests import (
    OF_SPANS,
    TABLES,
    count_kept_rows,
    count_spans_of_samples,
    delete_others,
    deletions_ended,
    store_kept_spans,
    store_kept_traces,
)
from sinks.requests.kept_requests import choose_operations, choose_traces, count_kept
from sinks.rollups.builds import note_builds, read_valid_builds
from sinks.rollups.changes import Changes, insert_settings, read_changes
from sinks.rollups.operation_tables import trace_ranges
from sinks.rollups.stored_days import date_of, rows_of_days
from sinks.rollups.unused_builds import KILLED_AFTER_S

IN_MEMORY = 60_000_000
"""While rows are deleted, each host keeps hashes of the traces that stay in memory, and for two tables those of the
spans of the day's samples, some 35 bytes each. If there are more of these, the rows stay."""
_CHANGES = ("sample_changes", "rollup_builds")
_FINAL_LEVELS = (OPERATION_MINUTES, OPERATION_HOURS, OPERATION_DAYS)
"""Those that are not built again once rows are gone; others are summed up from these."""
log = logging.getLogger(__name__)


def thin_requests(
    client: Client, now_unix_s: int, request_days: int, stop: threading.Event, cluster: Cluster = ONE_SERVER
) -> bool:
    """Thins one of the days that ended `request_days` and a day ago and have not changed for a day, the oldest first.
    Returns whether there was one. Raises the client's errors.

    A day whose rows change after it was thinned, as by a job, is thinned again.
    """
    if not deletions_ended(client, cluster):
        return False
    rows = sorted(rows_of_days(client, cluster, *TABLES, "trace_samples"))
    quiet = now_unix_s - DAY_S
    days = _changed(client, [day for day in rows if day + (2 + request_days) * DAY_S <= now_unix_s], quiet)
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
    _make_final(client, near, cluster)
    if not _are_final(client, near):
        return False
    for each in near:
        for traces in _ranges(client, each, day, stop, cluster):
            choose_traces(client, each, traces, cluster)
    wait_for_every_host(client, cluster, "kept_traces")
    if count_kept(client, day) > IN_MEMORY:
        log.warning("the requests of %s are not thinned: too many have to stay", date_of(day))
        _note(client, day, "whole", cluster)
        return False
    tables, thinning = TABLES, time.time_ns()
    store_kept_traces(client, day, thinning, cluster)
    if (spans := count_spans_of_samples(client, day)) > IN_MEMORY:
        log.info("the spans of %s are not thinned: %d have samples", date_of(day), spans)
        tables = tuple(table for table in TABLES if table not in OF_SPANS)
    for traces in _ranges(client, day, day, stop, cluster) if tables == TABLES else ():
        store_kept_spans(client, day, thinning, traces, cluster)
    kept_rows = count_kept_rows(client, day, thinning, cluster)
    wait_for_every_host(client, cluster, *_CHANGES)
    if stop.is_set() or _changes(client, near) != changes or not _settled(client, near, quiet_unix_s).issuperset(near):
        return False
    _note(client, day, "thinning", cluster)
    wait_for_every_host(client, cluster, "thinned_days")  # queries must know before rows go
    delete_others(client, day, thinning, kept_rows, tables, cluster)
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


def _changed(client: Client, days: Sequence[int], quiet_unix_s: int) -> list[int]:
    """Returns those of these days that were not looked at yet, or whose rows have changed since."""
    if not days:
        return []
    states = client.query(
        "SELECT toString(day), toUnixTimestamp(max(noted_time)), argMax(state, noted_time) IN ('choosing', 'thinning'),"
        " max(noted_time) > now() - {killed:UInt32} FROM thinned_days GROUP BY day",
        parameters={"killed": KILLED_AFTER_S},
    ).result_rows
    begun = {day for day, _, is_begun, lately in states if is_begun and lately}  # another process is at work
    noted = {str(day): int(at) for day, at, is_begun, _ in states if not is_begun}
    changes = _changes(client, days)

    def has_changed(day: int) -> bool:
        date, last = date_of(day), changes.get(day, Changes()).last_unix_s
        return date not in begun and (date not in noted or noted[date] < last <= quiet_unix_s)

    return [day for day in days if has_changed(day)]


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


def _are_final(client: Client, days: Sequence[int]) -> bool:
    final = client.query(
        "SELECT uniqExact(level, start_time) FROM rollup_builds"
        " WHERE state = 'final' AND level IN {levels:Array(String)}"
        " AND intDiv(toUnixTimestamp(start_time), {day:UInt32}) * {day:UInt32} IN {days:Array(UInt32)}",
        parameters={"days": days, "levels": [level.name for level in _FINAL_LEVELS], "day": DAY_S},
    ).result_rows[0][0]
    return bool(final == len(days) * sum(DAY_S // level.bucket_s for level in _FINAL_LEVELS))


def _note(client: Client, day: int, state: str, cluster: Cluster) -> None:
    rows = [[datetime.fromtimestamp(day, timezone.utc).date(), state]]
    client.insert("thinned_days", rows, column_names=["day", "state"], settings=insert_settings(cluster))
