"""What it costs to learn what short-lived processes map.

    python -m benchmarks.processes [--seconds 8]

A shell starts /bin/true again and again: at about 20 and 100 processes a second, and at 500 or as fast as this machine
can. Each rate runs with the collector's budget for decoding events at once, and without a bound. Prints one JSON
object: microseconds of the watching thread's CPU for each process that this machine started meanwhile, per cent of one
CPU, and the share of processes (of a sample) whose files are all known after their end. Needs root.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.watch import BUDGET, Watcher

RATES = (20, 100, 500)
ASKED = 200
WARM_UP_S = 4.0
SCRIPT = "i=0; while [ $i -lt {count} ]; do /bin/true & echo $!; i=$((i+1)); done; wait"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds to measure at each rate (default: 8)")
    seconds = parser.parse_args(argv).seconds
    figures = {}
    for rate in RATES:
        for name, budget in (("", BUDGET), ("_no_bound", 1.0)):
            figures[f"{rate}_per_second{name}"] = measure(seconds, rate, budget)
    print(json.dumps(figures))
    return 0


def measure(seconds: float, rate: int, budget: float) -> dict[str, float]:
    """Figures of one run."""
    files = FileCache()
    mappings = ProcessMappings(files)
    watcher = Watcher(mappings, budget)
    mappings.scan()
    watcher.start()
    _start(WARM_UP_S, rate)  # what was saved up for a burst is used up
    cpu_s, started, began = watcher.cpu_s, _started(), time.monotonic()
    pids = _start(seconds, rate)
    took, count = time.monotonic() - began, _started() - started
    used_s = watcher.cpu_s - cpu_s
    time.sleep(0.5)
    asked = pids[-ASKED:]
    known = sum(
        {"true", "libc.so.6"} <= {Path(mapped_range.file.file).name for mapped_range in mappings.ranges(pid)}
        for pid in asked
    )
    watcher.close()
    files.close()
    return {
        "processes_per_second": round(count / took, 1),
        "us_per_process": round(1e6 * used_s / count, 1),
        "percent": round(100 * used_s / took, 3),
        "known": known / len(asked),
        "lost_records": watcher.lost,
    }


def _start(seconds: float, rate: int) -> list[int]:
    """Starts processes for that time; returns their IDs."""
    pids: list[int] = []
    began = time.monotonic()
    burst = max(1, rate // 20)
    while time.monotonic() < began + seconds:
        script = SCRIPT.format(count=burst)
        done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True)
        pids += [int(pid) for pid in done.stdout.split()]
        time.sleep(max(0.0, began + len(pids) / rate - time.monotonic()))
    return pids


def _started() -> int:
    """Processes and threads that were ever started on this machine: /proc/stat."""
    return next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "processes" in line)


if __name__ == "__main__":
    raise SystemExit(main())
