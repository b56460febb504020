"""What the collector costs on hosts that do different things: its CPU by thread, its memory, and the rate it reaches.

    python -m benchmarks.collector [--seconds 60] [--loads busy go_build ...] [--frequency 19] [--as-cpus 64]
                                 [--beside "COMMAND"]

The loads: `busy` (a process for each CPU), `50_processes` (half of them Python), `2000_processes`, `short_lived`
(10,000 processes a minute), `go_build` (Go's standard library, again and again), `c_build` (small files, as fast as it
goes), `500_binaries` (with a build ID each), `node_and_java` (50 processes of Node and 20 of Java, which work ten times
a second).
With `--as-cpus`, it samples as often, with as much budget, as on a host with so many busy CPUs: each CPU stands for
several. The collector has the default CPU budget, unless `--cpu-budget` says otherwise, and publishes to an in-process
broker whose messages are read all the time. Beside it, in the same time, runs `perf record -g`, and each command that
`--beside` names, such as another profiler; it is ended by SIGINT.

Prints one JSON object. Per load: per cent of one CPU that the process with its children takes (`process_percent`, by
thread in `thread_percent`) and the eBPF programs (`bpf_percent`), wake-ups a second, megabytes resident, the frequency
and the shed level after the warm-up, samples a second, and the per cent of one CPU of what runs beside it. `hour`:
megabytes resident after 60 and after 720 batches, which are an hour's worth at short intervals. Needs root.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.collector.loads import CPUS, LOADS, missing, running
from benchmarks.collector.measured import Beside, collecting, figures
from collector.settings import CollectorSettings

WARM_UP_S = 60.0  # on a busy host the start alone takes half of it
SETTLE_S = 15.0  # until the unwinding tables of what runs beside the collector are made
HOUR_BATCHES, FIRST_BATCHES, HOUR_INTERVAL_S = 720, 60, 0.1
PERF = "perf record -F {hz} -g -a -e cpu-clock -o {folder}/perf.data"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds to measure each load (default: 60)")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="seconds before (default: 60)")
    parser.add_argument("--loads", nargs="*", choices=LOADS, default=list(LOADS), help="default: all")
    parser.add_argument("--frequency", type=int, default=19, help="samples per second and CPU (default: 19)")
    parser.add_argument("--as-cpus", type=int, default=CPUS, help="CPUs to simulate (default: those of this host)")
    parser.add_argument("--cpu-budget", type=float, default=CollectorSettings.cpu_budget)
    parser.add_argument("--beside", action="append", default=[], help="a command to measure in the same time")
    args = parser.parse_args(argv)
    results: dict[str, object] = {}
    for name in args.loads:
        lacking = missing(name)
        results[name] = {"skipped": f"{lacking} is not installed"} if lacking else measure(name, args)
    if "50_processes" in args.loads:
        results["hour"] = hour()
    print(json.dumps(results))
    return 0


def measure(name: str, args: argparse.Namespace) -> dict[str, object]:
    """Figures under one load."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        perf = [PERF.format(hz=args.frequency, folder=folder)] if shutil.which("perf") else []
        more = args.as_cpus / CPUS
        with running(name, folder), collecting(round(args.frequency * more), args.cpu_budget * more) as collector:
            time.sleep(args.warm_up)
            others = {command.split()[0]: Beside(command) for command in [*perf, *args.beside]}
            time.sleep(SETTLE_S)
            found = figures(collector, args.seconds)
            return found | {f"{other}_percent": beside.percent() for other, beside in others.items()}


def hour() -> dict[str, float]:
    """Memory after an hour's worth of batches."""
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        running("50_processes", Path(folder)),
        collecting(99, 0, HOUR_INTERVAL_S) as collector,
    ):
        began = time.monotonic()
        for batches in (FIRST_BATCHES, HOUR_BATCHES):
            time.sleep(max(0.0, began + WARM_UP_S + batches * HOUR_INTERVAL_S - time.monotonic()))
            found[f"resident_mb_after_{batches}"] = collector.resident_mb()
    return found


if __name__ == "__main__":
    sys.exit(main())
