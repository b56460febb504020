"""How long questions take on a filled store, and how many bytes a sample takes in each table.

    python -m benchmarks.storage [--rows 10000000] [--days 14] [--runs 5] [--no-rollups]

Fills an embedded ClickHouse (see benchmarks/storage/load.py), builds its rollups, and asks the API, in a process of its
own. Prints one JSON object: warm medians in milliseconds, elapsed and of CPU, the first merge after a start, bytes a
sample, and the peak memory of that process, which also answered two questions at the same time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from clickhouse_connect.driver.client import Client

from benchmarks.storage.load import DAY_S, START_S, fill_names, fill_samples
from icestream.clickhouse import Clients
from sinks.migrate import migrate
from sinks.rollups import Rollups

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="samples (default: 10 million)")
    parser.add_argument("--days", type=int, default=14, help="days that they spread over (default: 14)")
    parser.add_argument("--runs", type=int, default=5, help="warm runs of each question (default: 5)")
    parser.add_argument("--no-rollups", dest="rollups", action="store_false", help="answer from samples only")
    parser.add_argument("--folder", help="where to put the store (default: a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        dsn = f"chdb://{folder}/db"
        clients = Clients(dsn)
        result = fill(clients, args.rows, args.days, args.rollups)
        (trace_id,) = clients.get().query("SELECT lower(hex(trace_id)) FROM trace_samples LIMIT 1").result_rows[0]
        clients.discard()
        asked = subprocess.run(
            [sys.executable, "-m", "benchmarks.storage.questions", dsn, str(args.days), str(args.runs), trace_id],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    print(json.dumps(result | json.loads(asked.stdout)))
    return 0


def fill(clients: Clients, rows: int, days: int, rollups: bool) -> dict[str, object]:
    """Returns how long it took, and bytes a sample."""
    client, started = clients.get(), time.perf_counter()
    migrate(client)
    fill_names(client)
    fill_samples(client, rows, days)
    filled = time.perf_counter()
    result: dict[str, object] = {"rows": rows, "days": days, "filled_s": round(filled - started, 1)}
    client.command("OPTIMIZE TABLE samples FINAL")
    merged = time.perf_counter()
    if rollups:
        Rollups(clients).step(threading.Event(), START_S + days * DAY_S + 3600)
    result["rollups_built_s"] = round(time.perf_counter() - merged, 1)
    sizes = _sizes(client)
    result["nodes"] = client.query("SELECT count() FROM nodes").result_rows[0][0]
    result["bytes_a_sample"] = round(sum(sizes.values()) / rows, 2)
    return result | {f"bytes_a_sample_{table}": round(size / rows, 2) for table, size in sorted(sizes.items())}


def _sizes(client: Client) -> dict[str, int]:
    """Bytes on disk of each table, merged."""
    tables = "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
    for (table,) in client.query(tables).result_rows:
        client.command(f"OPTIMIZE TABLE {table} FINAL")
    parts = (
        "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase() GROUP BY 1"
    )
    return dict(client.query(parts).result_rows)


if __name__ == "__main__":
    sys.exit(main())
