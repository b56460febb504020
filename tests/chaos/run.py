"""Lets random things go wrong while several hosts publish, and compares what both stores hold with what was published.

    python -m tests.chaos.run [--seed N] [--events N]

Three stream workers, the store with the embedded ClickHouse and a lake sink, and another lake sink run on an
Apache Kafka of their own. Backfills correct both stores. The totals of every service, stack and trace must be exact.
Only traces whose activity was never published are an exception: their samples are stored without a trace. If Kafka
or a full disk loses something, the archive has it, and a replay restores what is missing in the end. Prints the
events, and each difference; ends with exit code 1 if there is one. The seed decides on the input and on the events, and
not on how the processes come to run.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.events import EVENTS, Chaos
from tests.chaos.load import Load
from tests.chaos.totals import differences, in_clickhouse, in_lake
from tests.data.windows import WINDOW_NS

HOSTS = 6
_TICKS = 4
"""Windows of each host that are published after an event."""
_AGO_NS = 180 * 10**9
"""The last window ends at least this long ago, so that a backfill takes it."""
_SHOWN = 30


@dataclass(frozen=True)
class Result:
    seed: int
    differences: list[str]
    windows: int
    seconds: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="default: a random one")
    parser.add_argument("--events", type=int, default=20, help="default: 20")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds to wait for lag to go (default: 900)")
    parser.add_argument("--without", action="append", default=[], choices=sorted(EVENTS), help="kind of event to omit")
    args = parser.parse_args(argv)
    seed = random.randrange(10**6) if args.seed is None else args.seed
    folder = Path(tempfile.mkdtemp(prefix="icestream-chaos-"))
    result = run(folder, seed, args.events, args.patience, True, args.without)
    for line in result.differences[:_SHOWN]:
        print(line)
    print(
        f"seed {seed}: {args.events} events, {result.windows} windows, {result.seconds:.0f} s,"
        f" {len(result.differences)} differences; logs and tables are in {folder}"
    )
    return 1 if result.differences else 0


def run(
    folder: Path, seed: int, events: int, patience_s: float, long_freezes: bool, without: Collection[str] = ()
) -> Result:
    """Runs in an empty folder. Raises AssertionError when messages are not processed within the time."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    say(f"seed {seed}, {events} events")
    draw = random.Random(seed)
    begin = (time.time_ns() - _AGO_NS) // WINDOW_NS * WINDOW_NS - (events + 3) * _TICKS * WINDOW_NS
    cluster = Cluster(folder, store_has_lake=True, small_disk="full disk" not in without)
    try:
        load = Load(cluster.settings, HOSTS, begin, seed)
        chaos = Chaos(cluster, load, draw, long_freezes, without, lambda: watch())

        def watch(seconds: float = 0.1) -> None:
            time.sleep(seconds)
            for ended in chaos.end_due():
                say(f"  {ended}")
            cluster.supervise()

        for number in range(events + 1):
            for _ in range(_TICKS):
                load.tick()
                watch(draw.uniform(0.05, 0.5))
            if number < events:
                say(chaos.happen())
        load.finish(watch)
        while chaos.later:
            watch()
        say("everything is published and runs")
        cluster.wait_until_stored(watch, patience_s)
        failed = chaos.finish_backfills()
        cluster.wait_until_stored(watch, patience_s)
        if chaos.needs_replay:
            failed += chaos.replay()
        ended = {name: count for name, count in cluster.restarts.items() if count}
        say(f"everything is stored; ended by themselves: {ended or 'none'}")
    finally:
        cluster.close()
    found = [f"ClickHouse: {line}" for line in differences(load.expected, in_clickhouse(cluster.data / "clickhouse"))]
    found += [f"lake: {line}" for line in differences(load.expected, in_lake(cluster.lake))]
    return Result(seed, failed + found, load.windows, time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
