"""Chooses which requests of a day are kept, over all shards: the traces in `kept_traces`.

A request is kept with its whole trace if it used more CPU or took longer than 99 % of its operation's requests of that
day. Operations with up to WHOLE_REQUESTS requests in a day keep all.
"""

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import operation_sums
from icestream.clickhouse.operation_sums import QUANTILES
from icestream.clickhouse.rollups import DAY_S, OPERATION_DAYS
from sinks.clickhouse.cluster import Cluster, wait_for_every_host
from sinks.clickhouse.damaged_parts import whole_parts
from sinks.rollups.builds import read_valid_builds
from sinks.rollups.changes import insert_settings
from sinks.rollups.operation_tables import LIMITS, OF_TRACES, SETTINGS, between
from sinks.rollups.stored_days import date_of

WHOLE_REQUESTS = 10_000
"""An operation with at most so many requests in a day keeps all of them."""
_NEVER = "1e19"
"""Above any number of nanoseconds, and a UInt64."""
_ERROR = 1.01
"""Percentiles of sketches are within 1 %. A request counts as heavy only above that: where nearly all are equal, none
is."""


def choose_operations(client: Client, day: int, cluster: Cluster) -> bool:
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
    parameters = {"day": date_of(day), "build": builds.get(day, 0), "whole": WHOLE_REQUESTS}
    for operations in (named, unnamed):
        with whole_parts(client):
            client.command(
                "INSERT INTO thinned_operations (day, service, operation, requests, above_cpu_ns, above_duration_ns)"
                f" SELECT {{day:Date}}, service, operation, n, {', '.join(above)} FROM ({operations})"
                " WHERE n > {whole:UInt64}",
                parameters=parameters,
                settings=insert_settings(cluster) | SETTINGS | LIMITS,
            )
    wait_for_every_host(client, cluster, "thinned_operations")
    chosen = "SELECT count() FROM thinned_operations WHERE day = {day:Date}"
    return bool(client.query(chosen, parameters={"day": date_of(day)}).result_rows[0][0])


def choose_traces(client: Client, day: int, traces: dict[str, str], cluster: Cluster) -> None:
    """Notes which traces of a range are kept for the requests of a day."""
    for select in (_select_heavy(day), _select_unreported(day), _select_named_by_spans(day)):
        insert = f"INSERT INTO kept_traces (day, trace_id) {select}"
        settings = insert_settings(cluster) | SETTINGS | LIMITS
        with whole_parts(client):
            client.command(insert, parameters={"day": date_of(day), **traces}, settings=settings)


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


def days_near(day: int) -> str:
    """Returns the condition of `day` for the days of which traces are kept for a day: requests go on after midnight."""
    return f"day >= '{date_of(day - DAY_S)}' AND day <= '{date_of(day + DAY_S)}'"
