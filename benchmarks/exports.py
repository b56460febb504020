"""How long it takes to export a profile of many stacks, in every format.

    python -m benchmarks.exports [--stacks 45000] [--runs 3]

Fills an embedded ClickHouse with one service's hour: stacks of depth 10 to 80 that share their prefixes, in 20,000
functions. Prints one JSON object. Times are milliseconds from the request to the last byte: `ms` is the median of the
runs, `cold_ms` is the first request to a new API, which has no stacks in memory yet. `bytes` are those of the answer as
it is sent to a client that takes gzip.
"""

import argparse
import json
import statistics
import tempfile
import time

from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients, connect
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.clickhouse.migrate import migrate

FUNCTIONS = 20_000
START_S = 1_770_000_000

_ID = "greatest(cityHash64({}), 1)"
# At depth d, 1.3^d paths have parted, until each stack is alone at depth 41.
_BRANCH = "intDiv(stack, toUInt32(greatest(1, {stacks} / pow(1.3, {depth}))))"
_DEPTH = "10 + cityHash64(stack) % 71"
_FILL = {
    "nodes": """
        INSERT INTO nodes
        SELECT DISTINCT {node} AS node_id, if(depth = 1, 0, {above}) AS parent_id, {location} AS location_id, now()
        FROM (SELECT number AS stack, toUInt32(arrayJoin(range(1, 11 + cityHash64(number) % 71))) AS depth
            FROM numbers({stacks}))""",
    "locations": """
        INSERT INTO locations
        SELECT {location_of_number}, 1, 'gnu:aa', '/usr/bin/service', number * 64, 1,
            [(concat('function_', toString(number)), concat('file_', toString(number % 500), '.c'), 10, 5)], now()
        FROM numbers({functions})""",
    "samples": """
        INSERT INTO samples (profile_type, service, series_id, host_id, time, pid, tid, stack_id, trace_id, span_id,
            count, value)
        SELECT '{profile_type}', 'service', 1, 'host', toDateTime64({start} + number % 3600, 3, 'UTC'), 1, 1, {leaf},
            unhex(repeat('0', 32)), unhex(repeat('0', 16)), 1, 52631578
        FROM (SELECT number, toUInt64(number % {stacks}) AS stack FROM numbers({stacks} * 4))""",
    "series": "INSERT INTO series SELECT 1, map('service', 'service'), now()",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", type=int, default=45_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dsn = f"chdb://{folder}"
        client = connect(dsn)
        fill(client, args.stacks)
        print(json.dumps(measure(dsn, client, args.stacks, args.runs)))
        client.close()


def fill(client: Client, stacks: int) -> None:
    migrate(client)

    def node(depth: str) -> str:
        return _ID.format(f"'node', {depth}, {_BRANCH.format(stacks=stacks, depth=depth)}")

    branch = _BRANCH.format(stacks=stacks, depth="depth")
    names = {
        "node": node("depth"), "above": node("depth - 1"), "leaf": node(f"({_DEPTH})"),
        "location": _ID.format(f"'location', (depth * 7919 + {branch}) % {FUNCTIONS}"),
        "location_of_number": _ID.format("'location', number"), "functions": FUNCTIONS, "stacks": stacks,
        "start": START_S, "profile_type": DEFAULT_PROFILE_TYPE,
    }  # fmt: skip
    for sql in _FILL.values():
        client.command(sql.format(**names))


def measure(dsn: str, client: Client, stacks: int, runs: int) -> dict[str, object]:
    result: dict[str, object] = {"stacks": stacks}
    result["nodes"] = client.query("SELECT count() FROM nodes").result_rows[0][0]
    for output_format in ("pprof", "speedscope", "collapsed", "tree"):
        http = TestClient(create_app(ApiSettings(), Clients(dsn)), base_url="http://localhost")
        times, size = [], 0
        for _ in range(runs + 1):
            started = time.perf_counter()
            query = {"start": START_S, "end": START_S + 3600, "format": output_format}
            with http.stream("GET", "/api/v1/merge", params=query) as answer:
                assert answer.status_code == 200, answer.read()
                size = sum(map(len, answer.iter_raw()))
            times.append(round((time.perf_counter() - started) * 1000, 1))
        result[output_format] = {"cold_ms": times[0], "ms": statistics.median(times[1:]), "bytes": size}
    return result


if __name__ == "__main__":
    main()
