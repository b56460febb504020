"""What questions about the last hour cost where rows are too many to read, and what the sums for them cost.

    python -m benchmarks.recent_requests [--requests 36000000] [--block 500000] [--without-rows]

An hour of requests until now, of 20 services with 50 operations each: CPU and durations are log-normal (5 ms and
20 ms), a request has an interval of CPU and a span, and is sampled at 19 Hz. They are stored in blocks in the order of
time, as by a sink. The 50 hours before have made-up rollups of these operations, each of 360,000 requests; those of six
hours are built from them. `insert_cpu_s` is of the first million requests, with the views and without them (`plain`),
with all merges. With `--without-rows`, only sums are stored, and only operations are asked for: 360 million requests
take 63 GB otherwise. Lists are read by rows (`rows`, without a limit of requests) and as the API does (`sums`). Prints
one JSON object.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import median
from typing import Any
from unittest.mock import patch

from clickhouse_connect.driver.client import Client

from api.errors import ApiError
from api.queries.database import Database
from api.queries.operations.operations import read_operations
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.traces.heaviest_traces import MinCpu, read_heaviest_traces
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.clickhouse.operation_sums import QUANTILES
from icestream.clickhouse.rollups import HOUR_S, OPERATION_HOURS, OPERATION_SIX_HOURS
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.clickhouse.cluster import DICTIONARIES
from sinks.clickhouse.migrate import migrate
from sinks.rollups.buckets import Bucket
from sinks.rollups.builder import build
from sinks.rollups.builds import note_builds

SERVICES, OPERATIONS = 20, 50
_LABELS = '{"service_version":"1.1"}'
_SAMPLE_NS = 10**9 // 19
_VIEWS = {
    "activity": ("recent_intervals_view",),
    "spans": ("recent_requests_view",),
    "samples": ("recent_samples_view", "recent_sample_sums_view"),
}
_COMPARED = 1_000_000
_TABLES = ("activity", "spans", "entry_spans", "span_operations", "samples", "trace_samples", "recent_operations")
_TIMES = 9
_HOURS, _SKETCHES, _VALUES = 50, 100, 20_000
_ROLLUPS = f"""
INSERT INTO operation_hours (service, profile_type, operation, request_labels, start_time, count, value, squares,
    longest_period, thread_cpu_ns, requests, measured, request_cpu_ns, request_duration_ns, cpu, duration, build)
SELECT concat('service-', toString(number % {SERVICES})), kind, concat('GET /', toString(intDiv(number, {SERVICES}))),
    '{_LABELS}', toDateTime({{hour:UInt32}}, 'UTC'), if(sampled, 50000, 0), if(sampled, 3e12, 0), if(sampled, 1e18, 0),
    if(sampled, {_SAMPLE_NS}, 0), if(sampled, 0, 3e12), if(sampled, 0, 360000), if(sampled, 0, 360000),
    if(sampled, 0, 3e12), if(sampled, 0, 9e12), if(sampled, none, cpu), if(sampled, none, duration), {{build:UInt64}}
FROM
(
    SELECT number, number % {_SKETCHES} AS of, kind, kind != '' AS sampled,
        arrayReduce('quantilesDDState({QUANTILES})', emptyArrayFloat64()) AS none
    FROM numbers({SERVICES * OPERATIONS}) ARRAY JOIN ['', '{DEFAULT_PROFILE_TYPE}'] AS kind
) AS operations
ANY LEFT JOIN sketches USING (of)"""
# The columns of a request: IDs, start, CPU, duration and source.
_REQUESTS = f"""
SELECT number, toFixedString(MD5(toString(number)), 16) AS trace,
    toFixedString(substring(MD5(concat('entry', toString(number))), 1, 8), 8) AS entry,
    concat('service-', toString(number % {SERVICES})) AS of,
    concat('host-', toString(cityHash64(number) % 1000)) AS host,
    concat('GET /', toString(intDiv(number, {SERVICES}) % {OPERATIONS})) AS op,
    fromUnixTimestamp64Nano({{start:Int64}} + toInt64(number * 3600 / {{requests:UInt64}} * 1e9), 'UTC') AS began,
    toUInt64(5e6 * exp(randNormal(0, 1, number))) AS cpu,
    toUInt64(cpu * (1 + 3 * exp(randNormal(0, 1, number + 1)))) AS lasted
FROM numbers({{first:UInt64}}, {{count:UInt64}})"""
_ROWS = {
    "spans (trace_id, span_id, name, operation, service, host_id, start_time, end_time,"
    " request_labels)":
        f"SELECT trace, entry, op, op, of, host, began, began + toIntervalNanosecond(lasted), '{_LABELS}' FROM made",
    "activity (trace_id, span_id, host_id, service, pid, tid, start_time, duration_ns, thread_cpu_ns, operation,"
    " entry_span_id, request_labels)":
        f"SELECT trace, entry, host, of, number % 16, number % 64, began, cpu, cpu, op, entry, '{_LABELS}' FROM made",
    "samples (time, profile_type, service, host_id, series_id, pid, tid, trace_id, span_id, stack_id, count, value,"
    " known_operation, request_labels)":
        f"SELECT began, '{DEFAULT_PROFILE_TYPE}', of, host, cityHash64(of, host), number % 16, number % 64, trace,"
        f" entry, number % 5000, 1, {_SAMPLE_NS}, op, '{_LABELS}' FROM made"
        f" WHERE cityHash64(number, 'sampled') % {_SAMPLE_NS} < cpu",
}  # fmt: skip


@dataclass(frozen=True)
class Hour:
    start_unix_nano: int
    requests: int

    def fill(self, client: Client, until: int, block: int) -> float:
        """Stores the requests before this number, and returns the CPU seconds of the inserts, without merges."""
        used = 0.0
        for first in range(0, until, block):
            parameters = {"start": self.start_unix_nano, "requests": self.requests, "first": first, "count": block}
            client.command(f"CREATE OR REPLACE TABLE made ENGINE = Memory AS {_REQUESTS}", parameters=parameters)
            begun = time.process_time()
            for table, rows in _ROWS.items():
                client.command(f"INSERT INTO {table} {rows}", settings={"optimize_on_insert": 0})  # as the sink
            used += time.process_time() - begun
        client.command("DROP TABLE made")
        return used


def keep_no_rows(client: Client) -> None:
    """Lets views sum up what is inserted, and drops it then."""
    for table, views in _VIEWS.items():
        made = [str(client.query(f"SHOW CREATE TABLE {view}").result_rows[0][0]) for view in views]
        for view in views:
            client.command(f"DROP TABLE {view}")
        client.command(f"RENAME TABLE {table} TO {table}_of_rows")
        client.command(f"CREATE TABLE {table} AS {table}_of_rows ENGINE = Null", settings=DICTIONARIES)
        for sql in made:
            client.command(sql)


def make_rollups(client: Client, until_s: int) -> None:
    """Makes the rollups of the hours before `until_s`."""
    client.command(
        f"CREATE TABLE sketches ENGINE = Memory AS SELECT number % {_SKETCHES} AS of,"
        f" quantilesDDState({QUANTILES})(5e6 * exp(randNormal(0, 1, number))) AS cpu,"
        f" quantilesDDState({QUANTILES})(2e7 * exp(randNormal(0, 1.2, number + 1))) AS duration"
        f" FROM numbers({_SKETCHES * _VALUES}) GROUP BY of"
    )
    builds = {until_s - HOUR_S * hour: hour for hour in range(1, _HOURS + 1)}
    for hour, number in builds.items():
        client.command(_ROLLUPS, parameters={"hour": hour, "build": number})
    client.command("DROP TABLE sketches")
    note_builds(client, OPERATION_HOURS, builds, "built")
    length_s = OPERATION_SIX_HOURS.bucket_s
    for start in range(-(-min(builds) // length_s) * length_s, until_s - length_s + 1, length_s):
        build(client, Bucket(OPERATION_SIX_HOURS, start))


def insert_cpu_s(hour: Hour, block: int, views: bool) -> float:
    """CPU seconds of the first requests of an hour, with all merges."""
    with tempfile.TemporaryDirectory() as folder:
        clients = Clients(f"chdb://{folder}/db")
        client = clients.get()
        migrate(client)
        for view in () if views else chain(*_VIEWS.values()):
            client.command(f"DROP VIEW {view}")
        client.command("SYSTEM STOP MERGES")
        used = hour.fill(client, min(_COMPARED, hour.requests), block)
        client.command("SYSTEM START MERGES")
        begun = time.process_time()
        for table in _TABLES:
            client.command(f"OPTIMIZE TABLE {table} FINAL")
        used += time.process_time() - begun
        clients.discard()
    return round(used, 2)


def measure(clients: Clients, until_unix_nano: int, rows: bool) -> dict[str, Any]:
    """Milliseconds of lists of the last hour and day, warm, as the API answers them at the end of the hour; with `rows`
    also by rows."""

    def last(hours: int) -> Selection:
        return Selection(DEFAULT_PROFILE_TYPE, (), TimeRange(until_unix_nano - hours * 3600 * 10**9, until_unix_nano))

    databases = {"sums": Database(clients, ApiSettings())}
    if rows:
        databases["rows"] = Database(clients, ApiSettings(api_exact_requests=10**12))
    took: dict[str, Any] = {}
    with patch("time.time_ns", lambda: until_unix_nano):
        for name, database in databases.items():
            took[f"operations_{name}_ms"] = _ms(partial(read_operations, database, last(24)))
            took[f"operations_of_hour_{name}_ms"] = _ms(partial(read_operations, database, last(1)))
            if rows:
                list_requests = partial(read_heaviest_traces, database, last(1), "cpu_ns", MinCpu(), None, 51)
                took[f"traces_{name}_ms"] = _ms(list_requests)
    return took


def _ms(ask: Callable[[], object]) -> float | str:
    times = []
    for _ in range(_TIMES + 1):
        begun = time.monotonic()
        try:
            ask()
        except ApiError as error:
            return error.message
        times.append(time.monotonic() - begun)
    return round(1000 * median(times[1:]), 1)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=36_000_000, help="of the hour; default: 36,000,000")
    parser.add_argument("--without-rows", action="store_true", help="store sums only, and ask for operations only")
    parser.add_argument("--block", type=int, default=500_000, help="requests stored together; default: 500,000")
    args = parser.parse_args(argv)
    hour = Hour(time.time_ns() - 3600 * 10**9, args.requests)
    answer: dict[str, Any] = {"requests": args.requests}
    for name, views in (("insert_cpu_s", True), ("insert_cpu_s_plain", False)):
        answer[name] = insert_cpu_s(hour, args.block, views)
    with tempfile.TemporaryDirectory() as folder:
        clients = Clients(f"chdb://{folder}/db")
        client = clients.get()
        migrate(client)
        if args.without_rows:
            keep_no_rows(client)
        hour.fill(client, args.requests, args.block)
        make_rollups(client, hour.start_unix_nano // (HOUR_S * 10**9) * HOUR_S)
        answer |= measure(clients, hour.start_unix_nano + 3600 * 10**9, not args.without_rows)
        sizes = "SELECT table, sum(bytes_on_disk), count() FROM system.parts WHERE active GROUP BY table"
        stored = {str(table): (int(size), int(parts)) for table, size, parts in client.query(sizes).result_rows}
        answer |= {"bytes_and_parts": {table: stored[table] for table in _TABLES if table in stored}}
        clients.discard()
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
