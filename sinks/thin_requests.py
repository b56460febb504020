"""Thins the requests of old days: rows of light requests go, and what is known of operations stays exact.

Operations with up to WHOLE_REQUESTS requests in a day keep all; a day with no others is left alone. Else its rollups of
operations become final, as do those of the days before and after it: thinning never changes their sums and percentiles.
A request is kept with its whole trace if it used more CPU or took longer than 99 % of its operation's requests of that
day, and one trace in a hundred by its ID (icestream/thinning.py). Samples all stay, with the names and operations of
their spans.

Rows are deleted by mutations of a day's partition: these leave alone what is inserted after them. If a day changes
while it is chosen what to keep, nothing of it is deleted. On a cluster nothing is thinned, because the rows of a trace
may be on several shards.
"""

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timezone

from clickhouse_connect.driver.client import Client

from icestream import operation_sums
from icestream.operation_sums import QUANTILES
from icestream.rollups import DAY_S, OPERATION_DAYS, OPERATION_LEVELS
from icestream.thinning import kept_traces
from sinks.cluster import ONE_SERVER
from sinks.operation_tables import LIMITS, OF_TRACES, SETTINGS, between, trace_ranges
from sinks.rollup_builds import note_builds, read_valid_builds
from sinks.rollup_changes import Changes, read_changes
from sinks.stored_days import rows_of_days
from sinks.unused_builds import KILLED_AFTER_S

WHOLE_REQUESTS = 10_000
"""An operation with at most so many requests in a day keeps all of them."""
SPANS_IN_MEMORY = 30_000_000
"""While rows are deleted, the server keeps the IDs of the traces that stay in memory, and for two tables those of the
spans of the day's samples, some 70 bytes each. If there are more of these, the rows stay."""
TABLES = ("activity", "entry_spans", "spans", "span_operations")
"""The tables that are thinned; their partitions are days."""
_NEVER = "1e19"
"""Above any number of nanoseconds, and a UInt64."""
_ERROR = 1.01
"""Percentiles of sketches are within 1 %. A request counts as heavy only above that: where nearly all are equal, none
is."""
_LATER: dict[str, int | str] = {"mutations_sync": 0}
"""The server deletes in the background."""
log = logging.getLogger(__name__)


def thin_requests(client: Client, now_unix_s: int, request_days: int, stop: threading.Event) -> bool:
    """Thins one of the days that ended `request_days` and a day ago and have not changed for a day, the oldest first.
    Returns whether there was one. Raises the client's errors.

    A day whose rows change after it was thinned, as by a job, is thinned again.
    """
    if not _mutations_ended(client):
        return False
    rows = sorted(rows_of_days(client, ONE_SERVER, *TABLES, "trace_samples"))
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
                many[each] = _choose_operations(client, each)
        if any(many[each] for each in near):
            return _thin(client, day, near, quiet, stop)
        _note(client, day, "whole")
    return False


def _thin(client: Client, day: int, near: Sequence[int], quiet_unix_s: int, stop: threading.Event) -> bool:
    """Thins a day; returns False where it had to stop, or something changed meanwhile. `near`: the day, and those
    before and after it, as far as they have rows."""
    changes = _changes(client, near)
    _make_final(client, near)
    if not _are_final(client, near):
        return False
    for each in near:
        for traces in trace_ranges(client, each, DAY_S):
            if stop.is_set():
                return False
            _note(client, day, "choosing")  # so that nobody takes it for killed
            _choose_traces(client, each, traces)
    if _changes(client, near) != changes or not _settled(client, near, quiet_unix_s).issuperset(near):
        return False
    kept = f"SELECT count() FROM kept_traces WHERE {_days_near(day)}"
    if client.query(kept).result_rows[0][0] > SPANS_IN_MEMORY:
        log.warning("the requests of %s are not thinned: too many have to stay", _date(day))
        _note(client, day, "whole")
        return False
    _note(client, day, "thinning")
    _delete_others(client, day)
    _note(client, day, "thinned")
    log.info("thinned the requests of %s", _date(day))
    return True


def _mutations_ended(client: Client) -> bool:
    """Whether the server has deleted what it was told to delete. Logs why it cannot."""
    rows = client.query(
        "SELECT table, latest_fail_reason FROM system.mutations"
        " WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND NOT is_done",
        parameters={"tables": list(TABLES)},
    ).result_rows
    for table, reason in rows:
        if reason:
            log.error("rows of %s cannot be deleted: %s", table, reason)
    return not rows


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
        date, last = _date(day), changes.get(day, Changes()).last_unix_s
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
        parameters={"day": DAY_S, "levels": [level.name for level in OPERATION_LEVELS]},
    ).result_rows
    at_work = {day for day, change in changes.items() if change.is_open or change.last_unix_s > quiet_unix_s}
    settled = set(days) - at_work - {int(day) for day, at in built if at > quiet_unix_s}
    for level in OPERATION_LEVELS:
        valid = read_valid_builds(client, level, days[0], days[-1] + DAY_S)
        settled = {day for day in settled if valid.keys() >= set(range(day, day + DAY_S, level.bucket_s))}
    return settled


def _changes(client: Client, days: Sequence[int]) -> dict[int, Changes]:
    """Returns the changes of days, which are in order, by their start; of those that have some."""
    return read_changes(client, OPERATION_DAYS, days[0], days[-1] + DAY_S)


def _make_final(client: Client, days: Sequence[int]) -> None:
    """From now on the rollups of these days are not built again: not all of their rows will be there."""
    for level in OPERATION_LEVELS:
        for day in days:
            note_builds(client, level, read_valid_builds(client, level, day, day + DAY_S), "final")


def _are_final(client: Client, days: Sequence[int]) -> bool:
    final = client.query(
        "SELECT uniqExact(level, start_time) FROM rollup_builds"
        " WHERE state = 'final' AND level IN {levels:Array(String)}"
        " AND intDiv(toUnixTimestamp(start_time), {day:UInt32}) * {day:UInt32} IN {days:Array(UInt32)}",
        parameters={"days": days, "levels": [level.name for level in OPERATION_LEVELS], "day": DAY_S},
    ).result_rows[0][0]
    return bool(final == len(days) * sum(DAY_S // level.bucket_s for level in OPERATION_LEVELS))


def _choose_operations(client: Client, day: int) -> bool:
    """Notes which operations of a day are thinned; returns whether there are any. Traces of a service whose operation
    is not known count as requests of an operation without a name; there is no percentile of their durations."""
    builds = read_valid_builds(client, OPERATION_DAYS, day, day + DAY_S)
    sketches = [f"quantilesDDMerge({QUANTILES})({name})[3]" for name in ("cpu", "duration")]
    named = (
        f"SELECT service, operation, sum(requests) AS n, {sketches[0]} AS heavy, {sketches[1]} AS slow"
        " FROM operation_days WHERE build = {build:UInt64} AND profile_type = '' AND operation != ''"
        " GROUP BY service, operation"
    )
    unnamed = (
        "SELECT service, '' AS operation, count() AS n, quantileTDigest(0.99)(used) AS heavy, toFloat64(nan) AS slow"
        " FROM (SELECT service, trace_id, sum(thread_cpu_ns) AS used"
        f" FROM activity {between(str(day), str(day + DAY_S))} AND operation = '' GROUP BY service, trace_id)"
        " GROUP BY service"
    )
    above = [f"toUInt64(least(if(isFinite({p}), {p} * {_ERROR}, {_NEVER}), {_NEVER}))" for p in ("heavy", "slow")]
    parameters = {"day": _date(day), "build": builds.get(day, 0), "whole": WHOLE_REQUESTS}
    for operations in (named, unnamed):
        client.command(
            "INSERT INTO thinned_operations (day, service, operation, requests, above_cpu_ns, above_duration_ns)"
            f" SELECT {{day:Date}}, service, operation, n, {', '.join(above)} FROM ({operations})"
            " WHERE n > {whole:UInt64}",
            parameters=parameters,
            settings=SETTINGS | LIMITS,
        )
    chosen = "SELECT count() FROM thinned_operations WHERE day = {day:Date}"
    return bool(client.query(chosen, parameters={"day": _date(day)}).result_rows[0][0])


def _choose_traces(client: Client, day: int, traces: dict[str, str]) -> None:
    """Notes which traces of a range are kept for the requests of a day."""
    for select in (_select_heavy(day), _select_unreported(day), _select_named_by_spans(day)):
        insert = f"INSERT INTO kept_traces (day, trace_id) {select}"
        client.command(insert, parameters={"day": _date(day), **traces}, settings=SETTINGS | LIMITS)


_THINNED = """LEFT ANY JOIN
(
    SELECT toString(service) AS of, toString(operation) AS op, above_cpu_ns, above_duration_ns, 1 AS is_thinned
    FROM thinned_operations FINAL WHERE day = {day:Date}
) AS thinned USING (of, op)"""


def _select_heavy(day: int) -> str:
    """Returns the SELECT of the traces that are kept for a request that began on a day."""
    began, ended = between(str(day), str(day + DAY_S)), between(str(day), str(day + 2 * DAY_S))
    requests = operation_sums.requests_from(f"{began} AND {OF_TRACES}", f"{ended} AND {OF_TRACES}")
    return f"""
SELECT DISTINCT {{day:Date}}, trace_id FROM
(
    SELECT toString(service) AS of, toString(operation) AS op, trace_id, duration_ns, request_cpu FROM {requests}
) AS request {_THINNED}
WHERE NOT is_thinned OR request_cpu > above_cpu_ns OR duration_ns > above_duration_ns"""


def _select_unreported(day: int) -> str:
    """Returns the SELECT of the traces that are kept for CPU of a day, without an entry span: it was not reported, as
    where a process was killed in the middle of its request, or is not known."""
    near = f"{between(str(day - DAY_S), str(day + 2 * DAY_S))} AND {OF_TRACES}"
    return f"""
SELECT DISTINCT {{day:Date}}, trace_id FROM
(
    SELECT toString(service) AS of, toString(operation) AS op, trace_id, entry_span_id, sum(thread_cpu_ns) AS used
    FROM activity {between(str(day), str(day + DAY_S))} AND {OF_TRACES}
        AND (trace_id, entry_span_id) NOT IN (SELECT trace_id, span_id FROM entry_spans {near})
    GROUP BY of, op, trace_id, entry_span_id
) AS request {_THINNED}
WHERE NOT is_thinned OR used > above_cpu_ns"""


def _select_named_by_spans(day: int) -> str:
    """Returns the SELECT of the traces with samples whose operation queries find by the spans of the trace, or by
    activity of a service that is called differently. They find it in `span_operations` by the hour of the sample and
    the one before."""
    samples, active = between(str(day), str(day + DAY_S), "time"), between(str(day - 3600), str(day + DAY_S + 3600))
    near = f"{between(str(day - DAY_S), str(day + 2 * DAY_S))} AND {OF_TRACES}"
    return f"""
SELECT DISTINCT {{day:Date}}, trace_id FROM trace_samples {samples} AND {OF_TRACES} AND span_id != toFixedString('', 8)
    AND (toString(service), trace_id, span_id, toUnixTimestamp(toStartOfHour(time))) NOT IN
    (
        SELECT toString(service), trace_id, span_id,
            arrayJoin([toUnixTimestamp(toStartOfHour(start_time)), toUnixTimestamp(toStartOfHour(start_time)) + 3600])
        FROM span_operations {active} AND {OF_TRACES}
    )
    AND trace_id IN
    (
        SELECT trace_id FROM spans {near}
        UNION ALL SELECT trace_id FROM activity {near} AND operation != ''
    )"""


def _delete_others(client: Client, day: int) -> None:
    """Has the rows of a day deleted that are not to be kept: the server goes on with that, also after a restart."""
    # The last samples of a span may be of the next day.
    samples = between(str(day - 3600), str(day + 2 * DAY_S), "time")
    (count,) = client.query(f"SELECT count() FROM trace_samples {samples}").result_rows[0]
    tables = TABLES if count <= SPANS_IN_MEMORY else TABLES[:2]
    if len(tables) < len(TABLES):
        log.info("the spans of %s are not thinned: it has %d samples of traces", _date(day), count)
    for table in tables:
        where = f"NOT {kept_traces(_days_near(day))}"
        if table in ("spans", "span_operations"):
            where += f" AND (trace_id, span_id) NOT IN (SELECT trace_id, span_id FROM trace_samples {samples})"
        client.command(f"ALTER TABLE {table} DELETE IN PARTITION '{_date(day)}' WHERE {where}", settings=_LATER)


def _days_near(day: int) -> str:
    return f"day >= '{_date(day - DAY_S)}' AND day <= '{_date(day + DAY_S)}'"


def _note(client: Client, day: int, state: str) -> None:
    client.insert("thinned_days", [[datetime.fromtimestamp(day, timezone.utc).date(), state]], ["day", "state"])


def _date(day: int) -> str:
    return datetime.fromtimestamp(day, timezone.utc).date().isoformat()
