"""Sends mutated messages to every topic that a part reads, between good ones, with every sink on.

    python -m tests.fuzz.run [--messages 200000] [--seed N]

No process may end or take more than 1.5 GB of memory, the totals of the good messages must be exact in ClickHouse and
in the lake. Streams must process each message of a collector, or count it as a dead letter; each sink must store each
message, recognise it as repeated, or count it as a dead letter, if it cannot be decoded. Prints one JSON object; ends
with exit code 1 if a promise is broken.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, DEAD_LETTERS, RAW, RESOLVE_GROUP, SYMBOLS
from tests.chaos.cluster import Cluster
from tests.chaos.load import Load
from tests.chaos.totals import differences, in_clickhouse, in_lake
from tests.data.windows import WINDOW_NS
from tests.fuzz.messages import TOPICS, Mutants
from tests.fuzz.sinks import sink_differences
from tests.pipeline.reading import lag
from tests.pipeline.reading import messages as read
from tests.waiting import wait_until

MEMORY_MB = 1500
_HOSTS = 4
_GOOD_WINDOWS = 40
"""The windows of each good host, spread over the run."""


@dataclass(frozen=True)
class Result:
    differences: list[str]
    """What broke a promise."""
    figures: dict[str, object]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000, help="mutated messages a topic (default: 200,000)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds to wait for lag to go (default: 3600)")
    args = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="icestream-fuzz-"))
    result = run(folder, args.messages, args.seed, args.patience)
    print("\n".join(result.differences[:30]), file=sys.stderr)
    print(json.dumps(result.figures | {"differences": len(result.differences), "logs": str(folder)}, indent=2))
    return 1 if result.differences else 0


def run(folder: Path, messages: int, seed: int, patience_s: float, settings: KafkaSettings | None = None) -> Result:
    """Runs in an empty folder. `settings`: of a Kafka with empty topics; else it starts one."""
    started = time.monotonic()
    cluster = Cluster(folder, workers=1, sinks=1, settings=settings)
    try:
        load = Load(cluster.settings, _HOSTS, time.time_ns() // WINDOW_NS * WINDOW_NS - 600 * 10**9, seed)
        _send(cluster.settings, load, messages, seed)
        cluster.wait_until_stored(cluster.check_alive, patience_s)
        wait_until(lambda: lag(cluster.settings, RESOLVE_GROUP, (SYMBOLS,)) == 0, cluster.logs)
        counted = {topic: _counted(cluster, topic) for topic in (RAW, ACTIVITY)}
        in_sinks = sink_differences(cluster)
        memory = {name: _peak_mb(part.process.pid) for name, part in cluster.parts.items()}
        letters = _dead_letters(cluster.settings)
    finally:
        cluster.close()
    found = [f"{name} took {mb} MB of memory" for name, mb in memory.items() if mb > MEMORY_MB] + in_sinks
    for topic, count in counted.items():
        sent = messages + load.windows
        if count != sent:
            found.append(f"{topic}: {sent} messages were sent, {count} were processed or counted as dead letters")
    for name, stored in (
        ("ClickHouse", in_clickhouse(cluster.data / "clickhouse")),
        ("lake", in_lake(cluster.lake)),
    ):
        found += [f"{name}: {line}" for line in differences(load.expected, stored.only(load.expected))]
    figures = {
        "messages_a_topic": messages, "topics": list(TOPICS), "seconds": round(time.monotonic() - started),
        "peak_memory_mb": memory, "dead_letters": letters,
    }  # fmt: skip
    return Result(found, figures)


def _send(settings: KafkaSettings, load: Load, messages: int, seed: int) -> None:
    """Sends all mutated messages, and windows of good hosts between them."""
    mutants, producer = Mutants(seed), clients.producer(settings, **{"message.timeout.ms": 0})
    for number in range(messages):
        if number % max(messages // _GOOD_WINDOWS, 1) == 0:
            load.tick()
        for topic in TOPICS:
            while True:
                try:
                    producer.produce(topic, mutants.next(topic, number), key=f"fuzz-{number % 64}")
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    load.finish(lambda: None)
    assert producer.flush(600) == 0


def _counted(cluster: Cluster, topic: str) -> int:
    """Messages of a topic that the stream worker has processed, has recognised as repeated, or could not process."""
    names = ("messages", "repeated", "dead_letters")
    metrics = cluster.metrics("streams-1")
    return round(sum(
        sample.value
        for name in names
        for sample in metrics.get(f"icestream_streams_{name}_total", [])
        if sample.labels["topic"] == topic
    ))  # fmt: skip


def _dead_letters(settings: KafkaSettings) -> dict[str, int]:
    """How many there are, by the stage that failed and the topic."""
    found: Counter[str] = Counter()
    for message in read(settings, DEAD_LETTERS):
        headers = {name: value.decode() for name, value in message.headers() or [] if isinstance(value, bytes)}
        found[f"{headers['icestream.stage']} {headers['icestream.topic']}"] += 1
    return dict(sorted(found.items()))


def _peak_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) // 1024


if __name__ == "__main__":
    sys.exit(main())
