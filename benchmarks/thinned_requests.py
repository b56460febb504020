"""What thinning the requests of a day saves (sinks/requests/thin_requests.py), and what it costs.

    python -m benchmarks.thinned_requests [--requests 1000000]

A day of requests of 10 services with 5 operations each: CPU and durations are log-normal, a request has 2 spans and 2
intervals of CPU, and is sampled at 19 Hz. All rows are merged before and after. Prints one JSON object.
"""

import argparse
import json
import resource
import sys
import tempfile
import threading
import time

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import DAY_S
from sinks.clickhouse.migrate import migrate
from sinks.requests.replace_requests import TABLES
from sinks.requests.thin_requests import thin_requests
from sinks.rollups.builder import Rollups

DAY = 1_770_000_000 // DAY_S * DAY_S
SERVICES, OPERATIONS = 10, 5
_SAMPLE_NS = 10**9 // 19
_CHUNK = 500_000


def _span(which: str) -> str:
    return f"toFixedString(substring(MD5(concat('{which}', toString(number))), 1, 8), 8)"


# The columns of a request: IDs, start, CPU (its median is 5 ms), duration and source.
_REQUESTS = f"""
SELECT number, toFixedString(MD5(toString(number)), 16) AS trace, {_span("entry")} AS entry, {_span("inner")} AS inner,
    concat('service-', toString(number % {SERVICES})) AS of, concat('host-', toString(number % 200)) AS host,
    concat('GET /', toString(intDiv(number, {SERVICES}) % {OPERATIONS})) AS op,
    fromUnixTimestamp64Nano(toInt64({DAY}000000000 + cityHash64(number) % {DAY_S}000000000), 'UTC') AS began,
    toUInt64(5e6 * exp(randNormal(0, 1, number))) AS cpu,
    toUInt64(cpu * (1 + 3 * exp(randNormal(0, 1, number + 1)))) AS lasted
FROM numbers({{first:UInt64}}, {_CHUNK})"""
_ROWS = {
    "spans (trace_id, span_id, parent_span_id, name, operation, service, host_id, start_time, end_time)":
        "SELECT trace, entry, toFixedString('', 8), op, op, of, host, began, began + toIntervalNanosecond(lasted)"
        " FROM made UNION ALL SELECT trace, inner, entry, 'query', '', of, host, began,"
        " began + toIntervalNanosecond(intDiv(lasted, 2)) FROM made",
    "activity (trace_id, span_id, host_id, service, pid, tid, start_time, duration_ns, thread_cpu_ns, operation,"
    " entry_span_id)":
        "SELECT trace, arrayJoin([entry, inner]), host, of, number % 16, number % 64, began, intDiv(lasted, 2),"
        " intDiv(cpu, 2), op, entry FROM made",
    "samples (time, service, host_id, series_id, pid, tid, trace_id, span_id, stack_id, count, value)":
        "SELECT began, of, host, cityHash64(of, host), number % 16, number % 64, trace, entry, number % 5000, 1,"
        f" {_SAMPLE_NS} FROM made WHERE cityHash64(number, 'sampled') % {_SAMPLE_NS} < cpu",
}  # fmt: skip


def fill(client: Client, requests: int) -> None:
    """Adds the rows of so many requests, in chunks."""
    for first in range(0, requests, _CHUNK):
        made = f"CREATE OR REPLACE TABLE made ENGINE = MergeTree ORDER BY trace AS {_REQUESTS}"
        client.command(made, parameters={"first": first})
        for table, rows in _ROWS.items():
            client.command(f"INSERT INTO {table} {rows}")
    client.command("DROP TABLE made")


def stored(client: Client) -> dict[str, int]:
    """Bytes of each table, with nothing left to merge."""
    for table in (*TABLES, "trace_samples"):
        client.command(f"OPTIMIZE TABLE {table} FINAL")
    sql = (
        "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND table IN {tables:Array(String)} GROUP BY 1"
    )
    tables = [*TABLES, "trace_samples", "kept_traces", "thinned_operations", "operation_minutes"]
    return {str(table): int(size) for table, size in client.query(sql, parameters={"tables": tables}).result_rows}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="of the day; default: 1,000,000")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        clients = Clients(f"chdb://{folder}/db")
        client = clients.get()
        migrate(client)
        fill(client, args.requests)
        before = stored(client)
        Rollups(clients, operations_s=1e6).step(threading.Event(), int(time.time()) + DAY_S // 8)
        begun, cpu = time.monotonic(), time.process_time()
        thin_requests(client, int(time.time()) + 2 * DAY_S, 3, threading.Event())
        took_s, cpu_s = time.monotonic() - begun, time.process_time() - cpu
        after = stored(client)
        kept = client.query("SELECT uniqExact(trace_id) FROM entry_spans").result_rows[0][0]
        clients.discard()
    of_requests = [sum(sizes[table] for table in TABLES) for sizes in (before, after)]
    print(json.dumps({
        "requests": args.requests, "kept_requests": kept, "bytes_before": before, "bytes_after": after,
        "bytes_a_request_before": round(of_requests[0] / args.requests, 1),
        "bytes_a_request_after": round(of_requests[1] / args.requests, 1),
        "share_of_bytes": round(of_requests[1] / of_requests[0], 4), "thinned_in_s": round(took_s, 1),
        "thinned_in_cpu_s": round(cpu_s, 1),
        "max_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
