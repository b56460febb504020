"""How long a merge takes, of 10 million samples and of one service's samples.

    python benchmarks/merge.py [--samples 10000000] [--runs 5]

Fills an embedded ClickHouse with generated tables: 40 services on 100 hosts over an hour, 3,000 stacks of depth 35
for each service (nodes and locations shared within a service), and asks the API in this process. Prints one JSON
object. Times are milliseconds from the request to the complete answer: `ms` is the median of the runs, `cold_ms` is the
first request to a new API, which has no stacks in memory yet.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse import Clients, connect
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.migrate import migrate

SERVICES = 40
STACKS = 3_000
DEPTH = 35
START_S = 1_770_000_000

_ID = "greatest(cityHash64({}), 1)"

# Stack s of a service is a path down a tree in which, at each depth d, one in 1.25^d paths stays together: prefixes are
# shared near the root, and leaves are the stacks' own.
_BRANCH = f"intDiv(stack, toUInt32(greatest(1, {STACKS} / pow(1.26, depth))))"
_FILL = {
    "nodes": f"""
        INSERT INTO nodes
        SELECT DISTINCT {_ID.format("service, depth, branch")} AS node_id,
            if(depth = 1, 0, {_ID.format("service, depth - 1, above")}) AS parent_id,
            {_ID.format("'location', service, (depth * 7 + branch) % 2000")} AS location_id, now()
        FROM
        (
            SELECT number % {SERVICES} AS service, intDiv(number, {SERVICES}) % {STACKS} AS stack,
                toUInt32(intDiv(number, {SERVICES * STACKS}) + 1) AS depth, {_BRANCH} AS branch,
                intDiv(stack, toUInt32(greatest(1, {STACKS} / pow(1.26, depth - 1)))) AS above
            FROM numbers({SERVICES * STACKS * DEPTH})
        )""",
    "locations": f"""
        INSERT INTO locations
        SELECT {_ID.format("'location', service, function")}, 1, concat('gnu:', toString(service)),
            concat('/usr/bin/service-', toString(service)), function * 64, 1,
            [(concat('function_', toString(function)), concat('file_', toString(function % 50), '.c'), 10, 5)], now()
        FROM (SELECT intDiv(number, 2000) AS service, number % 2000 AS function FROM numbers({SERVICES * 2000}))""",
    "series": f"""
        INSERT INTO series
        SELECT {_ID.format("'series', number")}, map('service', concat('service-', toString(number % {SERVICES})),
            'host', concat('host-', toString(intDiv(number, {SERVICES})))), now() FROM numbers({SERVICES * 100})""",
    "samples": f"""
        INSERT INTO samples (profile_type, service, series_id, host_id, time, pid, tid, stack_id, trace_id, span_id,
            count, value)
        SELECT '{DEFAULT_PROFILE_TYPE}', concat('service-', toString(service)),
            {_ID.format(f"'series', service + {SERVICES} * host")},
            concat('host-', toString(host)), toDateTime64({START_S} + number % 3600, 3, 'UTC'), 1, 1,
            {_ID.format(f"service, {DEPTH}, " + _BRANCH.replace("depth", str(DEPTH)))},
            unhex(repeat('0', 32)), unhex(repeat('0', 16)), 1, 52631578
        FROM
        (
            SELECT number, cityHash64(number) AS r,
                toUInt32(r % {SERVICES}) AS service, toUInt32(intDiv(r, 64) % 100) AS host,
                toUInt32(pow((intDiv(r, 8192) % 1000003) / 1000003, 2) * {STACKS}) AS stack
            FROM numbers({{samples}})
        )""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dsn = f"chdb://{folder}"
        client = connect(dsn)
        fill(client, args.samples)
        print(json.dumps(measure(dsn, client, args.samples, args.runs)))
        client.close()


def fill(client: Client, samples: int) -> None:
    migrate(client)
    for sql in _FILL.values():
        client.command(sql.format(samples=samples) if "{samples}" in sql else sql)
    client.command("OPTIMIZE TABLE samples FINAL")


def measure(dsn: str, client: Client, samples: int, runs: int) -> dict[str, object]:
    result: dict[str, object] = {"samples": samples, "services": SERVICES}
    result["nodes"] = client.query("SELECT count() FROM nodes").result_rows[0][0]
    asked: dict[str, dict[str, str] | None] = {
        "merge_days_tree": {"start": "0", "end": str(START_S + 7 * 86_400)},
        "merge_all_tree": {},
        "merge_all_pruned": {"max_nodes": "2000"},
        "merge_service_tree": {"selector": '{service="service-1"}'},
        "merge_label_tree": {"selector": '{host=~"host-1.*"}'},
        "merge_service_collapsed": {"selector": '{service="service-1"}', "format": "collapsed"},
        "merge_service_pprof": {"selector": '{service="service-1"}', "format": "pprof"},
        "top_all": None,
    }
    for name, parameters in asked.items():
        path = "/api/v1/top" if parameters is None else "/api/v1/merge"
        query = {"start": str(START_S), "end": str(START_S + 3600)} | (parameters or {})
        http = TestClient(create_app(ApiSettings(), Clients(dsn)))

        def ask(http: TestClient = http, path: str = path, query: dict[str, str] = query) -> None:
            assert http.get(path, params=query).status_code == 200

        result[name] = {"cold_ms": timed(ask), "ms": statistics.median(timed(ask) for _ in range(runs))}
    return result


def timed(ask: Callable[[], None]) -> float:
    start = time.perf_counter()
    ask()
    return round((time.perf_counter() - start) * 1000, 1)


if __name__ == "__main__":
    main()
