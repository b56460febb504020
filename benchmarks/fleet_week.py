"""Memory of a stream worker that processes all partitions of 1,000 hosts for a simulated week.

    python -m benchmarks.fleet_week [--hosts 1000] [--windows 2]

Each day the worker gets a few windows of each host, an hour apart, and a quarter of the hosts get new builds of their
services, with new stacks and pods. Memory depends on hosts, stacks and series, and not on how many windows come in
between. Prints one JSON object: megabytes after each day, and samples per second of CPU.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

from icestream.messages.message_id import MessageId
from icestream.times import DAY_NS, HOUR_NS
from icestream.topics import ACTIVITY, RAW
from streams.partition.process import Processor
from tests.data.fleet import SAMPLES, Fleet

PARTITIONS, DAYS = 12, 7


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000, help="default: 1,000")
    parser.add_argument("--windows", type=int, default=2, help="windows of each host a day (default: 2)")
    args = parser.parse_args(argv)
    print(json.dumps(measure(args.hosts, args.windows)))
    return 0


def measure(hosts: int, windows: int) -> dict[str, object]:
    """Megabytes and CPU seconds."""
    fleet, processor = Fleet(), Processor()
    begin = time.time_ns() - DAYS * DAY_NS
    resident, cpu_s, offset = [resident_mb()], 0.0, 0
    for day in range(DAYS):
        for window in range(windows):
            offset += 1
            start = begin + (24 * day + window) * HOUR_NS
            for host in range(hosts):
                made = fleet.window(host, offset, start, build=(day + host % 4) // 4)
                partition = host % PARTITIONS
                started = time.process_time()
                processor.activity(made.activity, MessageId("bench", ACTIVITY, partition, offset * hosts + host))
                processor.raw(made.raw, MessageId("bench", RAW, partition, offset * hosts + host))
                cpu_s += time.process_time() - started
        resident.append(resident_mb())
    return {
        "week_hosts": hosts,
        "week_resident_mb_by_day": resident,
        "week_samples_per_cpu_second": round(offset * hosts * SAMPLES / cpu_s),
    }


def resident_mb() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) // 1024


if __name__ == "__main__":
    sys.exit(main())
