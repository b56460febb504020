"""How fast a backfill recomputes a fleet from the archive, in multiples of real time for 1,000 hosts.

    python -m benchmarks.jobs [--hosts 100] [--windows 24]

The hosts are those of tests/data/fleet.py. `recomputed` is what one core does before rows are inserted, and
`stored` is the whole job of one process with the embedded engine. Prints one JSON object, which says how each figure
was taken. Compare only figures of one run of several versions in turn, on one machine.
"""

import argparse
import json
import resource
import sys
import tempfile
import time

from icestream.clickhouse.client import Clients
from icestream.messages.raw import decode_raw
from icestream.topics import ACTIVITY, RAW
from jobs.backfill import backfill
from jobs.job import Job
from jobs.recompute.recompute import RecomputeCounts, Recomputer, Unit
from jobs.recompute.slices import Work
from jobs.recompute.sources import ArchiveSource
from sinks.archive.archive import Archived, ArchiveSink
from sinks.clickhouse.migrate import migrate
from sinks.runner.ranges import InFlight, MessageRange
from streams.partition.process import Operators
from tests.data.fleet import Fleet
from tests.data.messages import WINDOW_NS

START = 1_770_000_000 * 10**9 // (600 * 10**9) * (600 * 10**9)
PARTITIONS, FLEET_HOSTS = 4, 1000
_TIME = f"what {FLEET_HOSTS:,} hosts send in so many seconds,"
_CPU = "CPU seconds of all threads of the process"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, help="default: 100")
    parser.add_argument("--windows", type=int, default=24, help="windows of each host (default: 24, two minutes)")
    args = parser.parse_args(argv)
    print(json.dumps(measure(args.hosts, args.windows)))
    return 0


def measure(hosts: int, windows: int) -> dict[str, float | dict[str, str]]:
    """Multiples of real time for each core and second, the largest resident memory, and how they were taken."""
    job = Job(kind="backfill", start_unix_nano=START, end_unix_nano=START + windows * WINDOW_NS)
    with tempfile.TemporaryDirectory() as folder:
        fill(f"{folder}/archive", hosts, windows)
        source = ArchiveSource(f"{folder}/archive")
        started = time.process_time()
        recomputer = Recomputer(source, Operators(), "")
        for partition in range(PARTITIONS):
            for _ in recomputer.portions(Unit(job.time_range, partition), RecomputeCounts()):
                pass
        recompute_s = time.process_time() - started
        clients = Clients(f"chdb://{folder}/db")
        migrate(clients.get())
        started, elapsed = time.process_time(), time.monotonic()
        backfill(Work(clients.get(), source, Operators, job))
        cpu_s, elapsed_s = time.process_time() - started, time.monotonic() - elapsed
        clients.discard()
    # The fleet's time is that of 1,000 hosts with as many windows.
    fleet_s = hosts * windows * WINDOW_NS / 1e9 / FLEET_HOSTS
    return {
        "jobs_recomputed_x_real_time_per_core": round(fleet_s / recompute_s, 2),
        "jobs_stored_x_real_time_per_core": round(fleet_s / cpu_s, 2),
        "jobs_stored_x_real_time": round(fleet_s / elapsed_s, 2),
        "jobs_max_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "how": {
            "jobs_recomputed_x_real_time_per_core": f"{_TIME} by {_CPU}, reading the archive included",
            "jobs_stored_x_real_time_per_core": f"{_TIME} by {_CPU}, for a backfill of empty tables; merges that"
            " ClickHouse does later are not in it",
            "jobs_stored_x_real_time": f"{_TIME} by elapsed seconds of the same backfill, beside whatever else runs",
            "jobs_max_resident_mb": "of the whole process, with ClickHouse and the making of the archive",
        },
    }


def fill(uri: str, hosts: int, windows: int) -> None:
    """Writes an archive of `windows` windows of each host."""
    fleet, sink = Fleet(), ArchiveSink(uri)
    for first in range(0, windows, 12):
        for partition in range(PARTITIONS):
            messages: dict[str, list[Archived]] = {RAW: [], ACTIVITY: []}
            for window in range(first, min(first + 12, windows)):
                start = START + window * WINDOW_NS
                for host in range(partition, hosts, PARTITIONS):
                    made = fleet.window(host, window + 1, start)
                    batch = decode_raw(made.raw).id
                    offset = window * hosts + host
                    times = start, start + WINDOW_NS
                    names = batch.collector, batch.started_unix_nano, batch.sequence, batch.part, batch.parts
                    for topic, value in ((RAW, made.raw), (ACTIVITY, made.activity)):
                        messages[topic].append(
                            Archived("C", partition, offset, start // 10**6, b"", value, *names, *times)
                        )
            for topic, chunk in messages.items():
                offsets = InFlight.new(chunk[0].offset, chunk[-1].offset)
                sink.write(MessageRange("C", topic, partition, offsets, chunk, False))


if __name__ == "__main__":
    sys.exit(main())
