"""Thins the requests of old days: rows of light requests go, and what is known of operations stays exact.

Operations with up to WHOLE_REQUESTS requests in a day keep all; a day with no others is left alone. Else its rollups of
operations become final, as do those of the days before and after it: thinning never changes their sums and percentiles.
A request is kept with its whole trace if it used more CPU or took longer than 99 % of its operation's requests of that
day, and one trace in a hundred by its ID (icestream/thinning.py). Samples all stay, with the names and operations of
their spans.

Rows are deleted by mutations of a day's partition: these leave alone what is inserted meanwhile. On a cluster nothing
is thinned, because the rows of a trace may be on several shards.
"""

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from icestream import operation_sums
from icestream.operation_sums import QUANTILES
from icestream.rollups import CHANGES_SQL, DAY_S, OPERATION_DAYS, OPERATION_LEVELS, bucket_parameters
from icestream.thinning import kept_traces
from sinks.cluster import ONE_SERVER
from sinks.operation_tables import OF_TRACES, SETTINGS, between, trace_ranges
from sinks.rollup_builds import note_builds, read_valid_builds
from sinks.stored_days import rows_of_days
from sinks.unused_builds import KILLED_AFTER_S

WHOLE_REQUESTS = 10_000
"""An operation with at most so many requests in a day keeps all of them."""
SAMPLES_IN_MEMORY = 30_000_000
"""While rows of spans are deleted, the server keeps the spans of the day's samples in memory, some 70 bytes each. If
there are more, the rows of `spans` and `span_operations` stay."""
TABLES = ("activity", "entry_spans", "spans", "span_operations")
"""The tables that are thinned; their partitions are days."""
_MANY = 2**64 - 1
_ERROR = 1.01
"""Percentiles of sketches are within 1 %. A request counts as heavy only above that: where nearly all are equal, none
is."""
log = logging.getLogger(__name__)


def thin_requests(client: Client, now_unix_s: int, request_days: int, stop: threading.Event) -> None:
    """Thins the days that ended `request_days` ago and have not changed for a day. Raises the client's errors.

    A day whose rows change after it was thinned, as by a job, is thinned again.
    """
    rows = rows_of_days(client, ONE_SERVER, *TABLES)
    quiet = now_unix_s - DAY_S
    days = _changed(client, sorted(day for day in rows if day + (1 + request_days) * DAY_S <= now_unix_s), quiet)
    if not days:
        return
    settled = _settled(client, sorted(rows), quiet)
    many: dict[int, bool] = {}
    for day in days:
        near = [each for each in (day - DAY_S, day, day + DAY_S) if each in rows]
        if stop.is_set() or not settled.issuperset(near):
            continue
        for each in near:
            if each not in many:
                many[each] = _choose_operations(client, each)
        if not any(many[each] for each in near):
            _note(client, day, "whole")
            continue
        _note(client, day, "choosing")
        _make_final(client, near)
        for each in near:
            _choose_traces(client, each)
        _thin(client, day)


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
    last = _last_changes(client, days)
    return [
        day
        for day, date in ((day, _date(day)) for day in days)
        if date not in begun and (date not in noted or noted[date] <= last.get(day, 0) <= quiet_unix_s)
    ]


def _settled(client: Client, days: Sequence[int], quiet_unix_s: int) -> set[int]:
    """Returns those of these days whose rollups of operations are complete, neither built nor changed lately."""
    changes = _last_changes(client, days)
    built = client.query(
        "SELECT intDiv(toUnixTimestamp(start_time), {day:UInt32}) * {day:UInt32} AS at,"
        " toUnixTimestamp(max(noted_time)) FROM rollup_builds"
        " WHERE state = 'built' AND level IN {levels:Array(String)} GROUP BY at",
        parameters={"day": DAY_S, "levels": [level.name for level in OPERATION_LEVELS]},
    ).result_rows
    lately = {int(day) for day, at in (*built, *changes.items()) if at > quiet_unix_s}
    settled = set(days) - lately
    for level in OPERATION_LEVELS:
        valid = read_valid_builds(client, level, days[0], days[-1] + DAY_S)
        settled = {day for day in settled if valid.keys() >= set(range(day, day + DAY_S, level.bucket_s))}
    return settled


def _last_changes(client: Client, days: Sequence[int]) -> dict[int, int]:
    """Returns when the rows of each day have last changed, by its start; both in Unix seconds. `days` are in order."""
    parameters = bucket_parameters(OPERATION_DAYS, days[0], days[-1] + DAY_S)
    return {int(row[0]): int(row[3]) for row in client.query(CHANGES_SQL, parameters=parameters).result_rows}


def _make_final(client: Client, days: Sequence[int]) -> None:
    """From now on the rollups of these days are not built again: not all of their rows will be there."""
    for level in OPERATION_LEVELS:
        for day in days:
            note_builds(client, level, read_valid_builds(client, level, day, day + DAY_S), "final")


def _choose_operations(client: Client, day: int) -> bool:
    """Notes which operations of a day are thinned; returns whether there are any."""
    builds = read_valid_builds(client, OPERATION_DAYS, day, day + DAY_S)
    bounds = [
        f"if(isFinite(p{name}), least(toUInt64(p{name} * {_ERROR}), {_MANY}), {_MANY})" for name in ("cpu", "duration")
    ]
    sketches = [f"quantilesDDMerge({QUANTILES})({name})[3] AS p{name}" for name in ("cpu", "duration")]
    client.command(
        "INSERT INTO thinned_operations (day, service, operation, requests, above_cpu_ns, above_duration_ns)"
        f" SELECT {{day:Date}}, service, operation, n, {', '.join(bounds)} FROM (SELECT service, operation,"
        f" sum(requests) AS n, {', '.join(sketches)} FROM operation_days WHERE build = {{build:UInt64}}"
        " AND profile_type = '' AND operation != '' GROUP BY service, operation HAVING n > {whole:UInt64})",
        parameters={"day": _date(day), "build": builds.get(day, 0), "whole": WHOLE_REQUESTS},
    )
    chosen = "SELECT count() FROM thinned_operations WHERE day = {day:Date}"
    return bool(client.query(chosen, parameters={"day": _date(day)}).result_rows[0][0])


def _choose_traces(client: Client, day: int) -> None:
    """Notes which traces are kept for the requests of a day."""
    for traces in trace_ranges(client, day, DAY_S):
        for select in (_select_heavy(day), _select_named_by_spans(day)):
            insert = f"INSERT INTO kept_traces (day, trace_id) {select}"
            client.command(insert, parameters={"day": _date(day), **traces}, settings=SETTINGS)


def _select_heavy(day: int) -> str:
    """Returns the SELECT of the traces that are kept for a request that began on a day."""
    began, ended = between(str(day), str(day + DAY_S)), between(str(day), str(day + 2 * DAY_S))
    requests = operation_sums.requests_from(f"{began} AND {OF_TRACES}", f"{ended} AND {OF_TRACES}")
    return (
        "SELECT DISTINCT {day:Date}, trace_id FROM (SELECT toString(service) AS of, toString(operation) AS op,"
        f" trace_id, duration_ns, request_cpu FROM {requests}) AS request LEFT ANY JOIN"
        " (SELECT toString(service) AS of, toString(operation) AS op, above_cpu_ns, above_duration_ns, 1 AS is_thinned"
        " FROM thinned_operations FINAL WHERE day = {day:Date}) AS thinned USING (of, op)"
        " WHERE NOT is_thinned OR request_cpu > above_cpu_ns OR duration_ns > above_duration_ns"
    )


def _select_named_by_spans(day: int) -> str:
    """Returns the SELECT of the traces with samples whose operation only their spans tell, or activity of a service
    that is called differently: these are looked up by trace."""
    samples, active = between(str(day), str(day + DAY_S), "time"), between(str(day - 3600), str(day + DAY_S + 3600))
    return (
        f"SELECT DISTINCT {{day:Date}}, trace_id FROM trace_samples {samples} AND {OF_TRACES}"
        " AND span_id != toFixedString('', 8) AND (toString(service), trace_id, span_id) NOT IN"
        f" (SELECT toString(service), trace_id, span_id FROM span_operations {active} AND {OF_TRACES})"
    )


def _thin(client: Client, day: int) -> None:
    """Notes that a day is thinned, and has its rows deleted: the server goes on with that, also after a restart."""
    near = f"day >= '{_date(day - DAY_S)}' AND day <= '{_date(day + DAY_S)}'"
    # The last samples of a span may be of the next day.
    samples = between(str(day - 3600), str(day + 2 * DAY_S), "time")
    (count,) = client.query(f"SELECT count() FROM trace_samples {samples}").result_rows[0]
    tables = TABLES if count <= SAMPLES_IN_MEMORY else TABLES[:2]
    if len(tables) < len(TABLES):
        log.info("the spans of %s are not thinned: it has %d samples of traces", _date(day), count)
    _note(client, day, "thinning")
    for table in tables:
        where = f"NOT {kept_traces(near)}"
        if table in ("spans", "span_operations"):
            where += f" AND (trace_id, span_id) NOT IN (SELECT trace_id, span_id FROM trace_samples {samples})"
        client.command(f"ALTER TABLE {table} DELETE IN PARTITION '{_date(day)}' WHERE {where}")
    _note(client, day, "thinned")
    log.info("thinned the requests of %s", _date(day))


def _note(client: Client, day: int, state: str) -> None:
    client.insert("thinned_days", [[datetime.fromtimestamp(day, timezone.utc).date(), state]], ["day", "state"])


def _date(day: int) -> str:
    return datetime.fromtimestamp(day, timezone.utc).date().isoformat()
