"""What each stage takes for a fleet: CPU, bytes, parts and commits, and how long a takeover lasts.

    python -m benchmarks.fleet [--hosts 1000] [--windows 3]

Simulated hosts (tests/data/fleet.py) publish as fast as the pipeline takes it: to an Apache Kafka, a stream worker, the
store (the ClickHouse sink, resolve and the archive, on the embedded engine) and a lake sink, each a process. A first
window of each host announces its stacks and is not measured. Then a second worker and a second sink join, and the first
ones are killed. CPU is what the processes used, so other work on the machine changes the figures little. Prints one
JSON object; "a day" is what these hosts would make in a day.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from icestream.clickhouse.client import connect
from icestream.kafka import clients
from icestream.times import DAY_NS
from icestream.topics import ACTIVITY, LAKE_GROUP, RAW, SAMPLES, STACKS, STREAMS_GROUP
from tests.chaos.cluster import STORE, Cluster
from tests.data.fleet import SAMPLES as WINDOW_SAMPLES
from tests.data.fleet import Fleet
from tests.data.messages import WINDOW_NS

_PATIENCE_S = 3600.0
_TAKEOVER_HOSTS = 50
_WINDOWS_A_DAY = DAY_NS // WINDOW_NS
_BY_WINDOW = (RAW, ACTIVITY, SAMPLES)
"""Topics that grow with each window; icestream.stacks grows with new code, and once a day."""
_STAGES = {"streams": "streams-1", "store": STORE, "lake": "lake-1"}
_TABLES = """
    SELECT table, sum(bytes_on_disk), sum(rows), sum(newest) FROM (
        SELECT table, partition, sum(bytes_on_disk) AS bytes_on_disk, sum(rows) AS rows, max(max_block_number) AS newest
        FROM system.parts WHERE active AND database = currentDatabase() AND table != 'schema_migrations' GROUP BY ALL)
    GROUP BY table ORDER BY table
"""


@dataclass(frozen=True)
class Table:
    """A table's size, and how many parts (ClickHouse) or commits (Delta) it took to write it."""

    size: int
    rows: int
    writes: int


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000, help="default: 1,000")
    parser.add_argument("--windows", type=int, default=3, help="windows of each host that are measured (default: 3)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="icestream-fleet-") as folder:
        print(json.dumps(measure(Path(folder), args.hosts, args.windows)))
    return 0


def measure(folder: Path, hosts: int, windows: int) -> dict[str, object]:
    """Figures of each stage, topic and table, and of the takeovers."""
    cluster, fleet = Cluster(folder, workers=1, sinks=1), Fleet()
    begin = time.time_ns() - (windows + 20) * WINDOW_NS
    try:
        first_s = _publish(cluster, fleet, hosts, 0, begin)
        first_bytes = _topic_bytes(folder)
        cpu = {name: _cpu_s(cluster, part) for name, part in _STAGES.items()}
        took_s = sum(_publish(cluster, fleet, hosts, window, begin) for window in range(1, windows + 1))
        cpu = {name: _cpu_s(cluster, part) - cpu[name] for name, part in _STAGES.items()}
        published = _topic_bytes(folder)
        memory = {name: _memory_mb(cluster, part, "VmHWM") for name, part in _STAGES.items()}
        takeover = _takeovers(cluster, fleet, hosts, windows + 1, begin)
    finally:
        cluster.close()
    stored = stored_tables(folder)
    lake = {path.name: _delta(path) for path in sorted(cluster.lake.iterdir()) if (path / "_delta_log").is_dir()}
    measured, stored_windows = hosts * windows, hosts * (windows + 1) + 3 * min(hosts, _TAKEOVER_HOSTS)
    minutes = (first_s + took_s) / 60
    day = hosts * _WINDOWS_A_DAY / measured
    return {
        "fleet_hosts": hosts,
        "fleet_windows": measured,
        "windows_per_cpu_second": {name: round(measured / seconds, 1) for name, seconds in cpu.items()},
        "samples_per_cpu_second": {name: round(measured * WINDOW_SAMPLES / seconds) for name, seconds in cpu.items()},
        "peak_memory_mb": memory,
        "topic_gb_a_day": {
            topic: round((published[topic] - first_bytes[topic]) * day / 1e9, 2) for topic in _BY_WINDOW
        },
        "announced_mb": round(published[STACKS] / 1e6, 1),
        "rows_a_window": {name: round(table.rows / stored_windows, 1) for name, table in stored.items()},
        "bytes_a_row": {name: round(table.size / table.rows, 1) for name, table in stored.items() if table.rows},
        "lake_bytes_a_row": {name: round(table.size / table.rows, 1) for name, table in lake.items() if table.rows},
        "parts_a_minute": {name: round(table.writes / minutes) for name, table in stored.items()},
        "commits_a_minute": {name: round(table.writes / minutes) for name, table in lake.items()},
        "windows_a_minute": round(hosts * (windows + 1) / minutes),
        "measured_s": round(took_s),
        "takeover_s": takeover,
    }


def _publish(cluster: Cluster, fleet: Fleet, hosts: int, window: int, begin: int) -> float:
    """Publishes one window of each host, and waits until all is stored; returns the seconds that it took."""
    started = time.monotonic()
    producer = clients.producer(cluster.settings)
    for host in range(hosts):
        made = fleet.window(host, window + 1, begin + window * WINDOW_NS)
        producer.produce(ACTIVITY, made.activity, key=f"host-{host}")
        producer.produce(RAW, made.raw, key=f"host-{host}")
        producer.poll(0)
    assert producer.flush(_PATIENCE_S) == 0
    cluster.wait_until_stored(cluster.check_alive, _PATIENCE_S)
    return time.monotonic() - started


def _takeovers(cluster: Cluster, fleet: Fleet, hosts: int, first_window: int, begin: int) -> dict[str, float]:
    """Seconds from a kill until all that a few hosts publish at the kill is stored."""
    hosts = min(hosts, _TAKEOVER_HOSTS)
    joined = {"streams-1": cluster.join_worker(), "lake-1": "lake-2"}
    cluster.start(joined["lake-1"], *cluster.parts["lake-1"].arguments[:-2])
    for name in joined.values():
        cluster.wait_until_ready(name)
    _publish(cluster, fleet, hosts, first_window, begin)
    found = {}
    for number, (victim, group) in enumerate((("streams-1", STREAMS_GROUP), ("lake-1", LAKE_GROUP)), 1):
        cluster.parts.pop(victim).process.kill()
        killed = time.monotonic()
        _publish(cluster, fleet, hosts, first_window + number, begin)
        found[group] = round(time.monotonic() - killed, 1)
    return found


def _topic_bytes(folder: Path) -> dict[str, int]:
    """Bytes of each topic in Kafka's log."""
    log = folder / "kafka" / "log"
    return {topic: sum(path.stat().st_size for path in log.glob(f"{topic}-*/*.log")) for topic in (*_BY_WINDOW, STACKS)}


def _cpu_s(cluster: Cluster, name: str) -> float:
    """CPU that a process has used, user and system."""
    fields = Path(f"/proc/{cluster.parts[name].process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(cluster: Cluster, name: str, field: str) -> int:
    match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{cluster.parts[name].process.pid}/status").read_text())
    assert match is not None
    return int(match[1]) // 1024


def stored_tables(folder: Path) -> dict[str, Table]:
    """The tables of the embedded ClickHouse, merged; a process of its own opens it."""
    command = [sys.executable, "-c", "import benchmarks.fleet as fleet, sys; fleet.print_tables(sys.argv[1])"]
    answer = subprocess.run([*command, f"chdb://{folder}/data/clickhouse"], stdout=subprocess.PIPE, check=True)
    return {name: Table(*values) for name, values in json.loads(answer.stdout).items()}


def print_tables(dsn: str) -> None:
    """Prints {table: [bytes after merging, rows, parts that were inserted]} as JSON."""
    client = connect(dsn)
    parts = {table: newest for table, _, _, newest in client.query(_TABLES).result_rows}
    for table in parts:
        client.command(f"OPTIMIZE TABLE `{table}` FINAL")
    rows = client.query(_TABLES).result_rows
    print(json.dumps({table: [int(size), int(count), int(parts[table])] for table, size, count, _ in rows}))


def _delta(path: Path) -> Table:
    table = DeltaTable(str(path))
    files = table.get_add_actions(flatten=True)
    sizes, counts = (files.column(name).to_pylist() for name in ("size_bytes", "num_records"))
    return Table(sum(sizes), sum(counts), table.version() + 1)


if __name__ == "__main__":
    sys.exit(main())
