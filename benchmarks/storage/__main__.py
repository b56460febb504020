"""How long questions take on a filled store, and how many bytes a sample takes in each table.

    python -m benchmarks.storage [--rows 10000000] [--days 14] [--pods 1] [--runs 5] [--no-rollups] [--data DIR]

Fills an embedded ClickHouse (see benchmarks/storage/load.py), builds its rollups, and asks the API, in a process of its
own. Prints one JSON object: warm medians in milliseconds, elapsed and of CPU, the first merge after a start, bytes a
sample, and the peak memory of that process, which also answered two questions at the same time. At the end it asks some
questions again while a thread of that process stores 304,000 samples a second, as a sink does.
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
from icestream.clickhouse.client import Clients
from sinks.clickhouse.migrate import migrate
from sinks.rollups.builder import Rollups

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="samples (default: 10 million)")
    parser.add_argument("--days", type=int, default=14, help="days that they spread over (default: 14)")
    parser.add_argument("--pods", type=int, default=1, help="of each version of a service on a host (default: 1)")
    parser.add_argument("--runs", type=int, default=5, help="warm runs of each question (default: 5)")
    parser.add_argument("--no-rollups", dest="rollups", action="store_false", help="answer from samples only")
    parser.add_argument("--data", type=Path, help="a folder for the store, filled once and kept (default: temporary)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.data or Path(temporary)).resolve()
        filled = folder / "filled.json"
        if not filled.exists():
            folder.mkdir(parents=True, exist_ok=True)
            filled.write_text(json.dumps(fill(f"chdb://{folder}/db", args.rows, args.days, args.pods, args.rollups)))
        result = json.loads(filled.read_text())
        asked = subprocess.run(
            [sys.executable, "-m", "benchmarks.storage.questions", f"chdb://{folder}/db", str(result["days"]),
             str(args.runs), result["trace_id"]],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    print(json.dumps(result | json.loads(asked.stdout)))
    return 0


def fill(dsn: str, rows: int, days: int, pods: int, rollups: bool) -> dict[str, object]:
    """Returns how long it took, bytes a sample, and the ID of a trace."""
    clients, started = Clients(dsn), time.perf_counter()
    client = clients.get()
    migrate(client)
    fill_names(client, pods)
    fill_samples(client, rows, days, pods)
    filled = time.perf_counter()
    result: dict[str, object] = {"rows": rows, "days": days, "filled_s": round(filled - started, 1)}
    client.command("OPTIMIZE TABLE samples FINAL")
    merged = time.perf_counter()
    if rollups:
        Rollups(clients).step(threading.Event(), START_S + days * DAY_S + 3600)
    result["rollups_built_s"] = round(time.perf_counter() - merged, 1)
    sizes = _sizes(client)
    for table in ("nodes", "series"):
        result[table] = client.query(f"SELECT count() FROM {table}").result_rows[0][0]
    (trace_id,) = client.query("SELECT lower(hex(trace_id)) FROM trace_samples LIMIT 1").result_rows[0]
    clients.discard()
    result["trace_id"] = trace_id
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
