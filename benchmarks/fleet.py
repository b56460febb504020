"""What each stage takes for a fleet: CPU, bytes, parts and commits, and how long a takeover lasts.

    python -m benchmarks.fleet [--hosts 1000] [--windows 3] [--workers 1] [--partitions 4]

Simulated hosts (tests/data/fleet.py) publish as fast as the pipeline takes it: to an Apache Kafka, stream workers, the
store (the ClickHouse sink, resolve and the archive, on the embedded engine) and a lake sink, each a process. A first
window of each host announces its stacks and is not measured. Then one more worker and a second sink join, and the first
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
from standalone.supervisor.in_process_broker import PARTITIONS
from tests.chaos.cluster import Cluster
from tests.data.fleet import SAMPLES as WINDOW_SAMPLES
from tests.data.fleet import Fleet
from tests.data.messages import WINDOW_NS

_PATIENCE_S = 3600.0
_TAKEOVER_HOSTS = 50
_WINDOWS_A_DAY = DAY_NS // WINDOW_NS
_BY_WINDOW = (RAW, ACTIVITY, SAMPLES)
"""Topics that grow with each window; icestream.stacks grows with new code, and once a day."""
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
    parser.add_argument("--workers", type=int, default=1, help="stream workers (default: 1)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"of each topic (default: {PARTITIONS})")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="icestream-fleet-") as folder:
        print(json.dumps(measure(Path(folder), args.hosts, args.windows, args.workers, args.partitions)))
    return 0


def measure(
    folder: Path, hosts: int, windows: int, workers: int = 1, partitions: int = PARTITIONS
) -> dict[str, object]:
    """Figures of each stage, topic and table, and of the takeovers."""
    cluster, fleet = Cluster(folder, workers=workers, partitions=partitions), Fleet()
    begin = time.time_ns() - (windows + 20) * WINDOW_NS
    try:
        first_s = _publish(cluster, fleet, hosts, 0, begin)
        first_bytes = _topic_bytes(folder)
        cpu = _cpu_s(cluster)
        took_s = sum(_publish(cluster, fleet, hosts, window, begin) for window in range(1, windows + 1))
        cpu = {stage: seconds - cpu[stage] for stage, seconds in _cpu_s(cluster).items()}
        published = _topic_bytes(folder)
        memory = _peak_memory_mb(cluster)
        join_s, takeover_s = _takeovers(cluster, fleet, hosts, windows + 1, begin)
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
        "join_s": join_s,
        "takeover_s": takeover_s,
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


def _takeovers(
    cluster: Cluster, fleet: Fleet, hosts: int, first_window: int, begin: int
) -> tuple[float, dict[str, float]]:
    """Seconds from the start of one more worker until all workers have partitions, and from a kill until all that a few
    hosts publish at the kill is stored."""
    hosts = min(hosts, _TAKEOVER_HOSTS)
    started = time.monotonic()
    cluster.join_worker()
    for name in reversed(cluster.workers()):
        cluster.wait_until_ready(name)
    join_s = round(time.monotonic() - started, 1)
    cluster.start("lake-2", *cluster.parts["lake-1"].arguments[:-2])
    cluster.wait_until_ready("lake-2")
    _publish(cluster, fleet, hosts, first_window, begin)
    found = {}
    for number, (victim, group) in enumerate((("streams-1", STREAMS_GROUP), ("lake-1", LAKE_GROUP)), 1):
        cluster.parts.pop(victim).process.kill()
        killed = time.monotonic()
        _publish(cluster, fleet, hosts, first_window + number, begin)
        found[group] = round(time.monotonic() - killed, 1)
    return join_s, found


def _topic_bytes(folder: Path) -> dict[str, int]:
    """Bytes of each topic in Kafka's log."""
    log = folder / "kafka" / "log"
    return {topic: sum(path.stat().st_size for path in log.glob(f"{topic}-*/*.log")) for topic in (*_BY_WINDOW, STACKS)}


def _processes(cluster: Cluster) -> dict[str, list[int]]:
    """The processes of each stage, by their IDs."""
    assert cluster.kafka is not None
    assert cluster.kafka.process is not None
    stages = {"kafka": [cluster.kafka.process.pid]}
    for name, part in cluster.parts.items():
        stages.setdefault(name.partition("-")[0], []).append(part.process.pid)
    return stages


def _cpu_s(cluster: Cluster) -> dict[str, float]:
    """CPU that each stage has used, user and system."""

    def used(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    ticks = os.sysconf("SC_CLK_TCK")
    return {stage: sum(map(used, pids)) / ticks for stage, pids in _processes(cluster).items()}


def _peak_memory_mb(cluster: Cluster) -> dict[str, int]:
    """Memory of the largest process of each stage."""

    def peak(pid: int) -> int:
        match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert match is not None
        return int(match[1]) // 1024

    return {stage: max(map(peak, pids)) for stage, pids in _processes(cluster).items()}


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
