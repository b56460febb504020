"""What profiles cost whose names come with them, as SDKs push them: in the gateway, in Kafka, and in streams.

    python -m benchmarks.gateway [--profiles 2000] [--senders 4]

Each profile is of ten seconds of one of 10 services: 150 samples of its 2,000 stacks, which are 10 to 60 deep and share
prefixes, in 1,500 functions. It is pprof in gzip, pushed over HTTP to a gateway process of its own, that publishes to
an Apache Kafka (`make kafka`). What is there is then read and processed as streams do. Prints one JSON object: an ack
comes when Kafka has the profile, rows are samples, and CPU seconds are user and system time.
"""

import argparse
import gzip
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from collector.guest.own_cpu import seconds_of
from icestream.commands.topics import create
from icestream.messages.message_id import MessageId
from icestream.topics import RAW
from standalone.supervisor.local_kafka import LocalKafka
from streams.process import Processor
from tests.gateway.profiles import maker
from tests.pipeline.reading import messages
from tests.pipeline.running import free_port
from tests.waiting import wait_until

SERVICES, STACKS, FUNCTIONS, SAMPLES = 10, 2000, 1500, 150
WINDOW_NS = 10 * 10**9


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--senders", type=int, default=4, help="at the same time (default: 4)")
    args = parser.parse_args(argv)
    print(json.dumps(measure(make_profiles(args.profiles), args.senders)))
    return 0


def measure(profiles: list[tuple[int, bytes]], senders: int) -> dict[str, float]:
    """`profiles`: the number of the service, and the body."""
    port = free_port()
    folder = tempfile.TemporaryDirectory()
    kafka = LocalKafka(Path(folder.name))
    kafka.start()
    settings = kafka.settings()
    create(settings, partitions=2, replication=1)
    command = ["gateway", "--gateway-listen", f"127.0.0.1:{port}", "--gateway-grpc-listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile() as log:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "icestream.cli", *command, "--kafka", settings.kafka], stdout=log, stderr=log
        )
        try:
            wait_until(lambda: _answers(port))
            push(port, *profiles[0])  # imports, connections
            before, started = seconds_of(gateway.pid), time.perf_counter()
            with ThreadPoolExecutor(senders) as pool:
                acknowledged = list(pool.map(lambda one: push(port, *one), profiles[1:]))
            took, gateway_s = time.perf_counter() - started, seconds_of(gateway.pid) - before
        finally:
            gateway.terminate()
            gateway.wait()
    published = [message.value() or b"" for message in messages(settings, RAW)]
    kafka.close()
    in_kafka = sum(log.stat().st_size for log in Path(folder.name).rglob(f"{RAW}-*/*.log"))
    folder.cleanup()
    rows = SAMPLES * len(profiles)
    streams_s = process(published)
    sent = sum(len(body) for _, body in profiles)
    return {
        "profiles": len(profiles),
        "rows": rows,
        "profiles_per_second": round(len(acknowledged) / took),
        "ack_ms_p50": round(1000 * statistics.median(acknowledged), 1),
        "ack_ms_p99": round(1000 * statistics.quantiles(acknowledged, n=100)[98], 1),
        "gateway_cpu_ms_per_profile": round(1000 * gateway_s / len(acknowledged), 2),
        "gateway_profiles_per_cpu_s": round(len(acknowledged) / gateway_s),
        "streams_cpu_ms_per_profile": round(1000 * streams_s / len(profiles), 2),
        "streams_rows_per_cpu_s": round(rows / streams_s),
        "sent_mb": round(sent / 1e6, 2),
        "kafka_mb": round(in_kafka / 1e6, 2),
        "kafka_over_sent": round(in_kafka / sent, 2),
    }


def process(published: list[bytes]) -> float:
    """Returns the CPU seconds of streams for the last half of the messages, times two: the stacks are known then."""
    processor, half = Processor(), len(published) // 2

    def of(offsets: range) -> float:
        started = time.process_time()
        for offset in offsets:
            processor.raw(published[offset], MessageId("bench", RAW, 0, offset))
        return time.process_time() - started

    of(range(half))
    return of(range(half, len(published))) * len(published) / (len(published) - half)


def make_profiles(count: int) -> list[tuple[int, bytes]]:
    chosen = random.Random(1)
    services = [_stacks(chosen, number) for number in range(SERVICES)]
    first = time.time_ns() - count // SERVICES * WINDOW_NS - 60 * 10**9
    return [
        (i % SERVICES, _profile(chosen, services[i % SERVICES], first + i // SERVICES * WINDOW_NS))
        for i in range(count)
    ]


def _stacks(chosen: random.Random, service: int) -> list[list[int]]:
    """Stacks of numbers of functions, root first."""
    stacks: list[list[int]] = [[0]]
    while len(stacks) < STACKS:
        stem = chosen.choice(stacks)
        stem = stem[: chosen.randint(1, len(stem))]
        more = chosen.randint(1, max(60 - len(stem), 1))
        stacks.append(stem + [(service * 7 + chosen.randrange(FUNCTIONS)) % FUNCTIONS for _ in range(min(more, 12))])
    return stacks


def _profile(chosen: random.Random, stacks: list[list[int]], time_nanos: int) -> bytes:
    made = maker([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    made.profile.time_nanos, made.profile.duration_nanos = time_nanos, WINDOW_NS
    ids: dict[int, int] = {}
    for stack in chosen.sample(stacks, SAMPLES):
        for number in stack:
            if number not in ids:
                ids[number] = len(ids) + 1
                name = made.string(
                    f"github.com/company/shop/internal/package{number % 90}.(*Type{number % 40}).Method{number}"
                )
                file = made.string(
                    f"/go/src/github.com/company/shop/internal/package{number % 90}/file{number % 200}.go"
                )
                made.profile.function.add(id=ids[number], name=name, system_name=name, filename=file, start_line=10)
                made.profile.location.add(id=ids[number], address=4096 + number * 64).line.add(
                    function_id=ids[number], line=10 + number % 80
                )
        count = chosen.randint(1, 20)
        made.profile.sample.add(location_id=[ids[number] for number in reversed(stack)], value=[count, count * 10**7])
    return gzip.compress(made.done().SerializeToString(), 6)


def push(port: int, service: int, body: bytes) -> float:
    """Returns the seconds until the gateway answers that Kafka has it."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", f"/api/v1/ingest/pprof?service=service-{service}&pod=pod-{service}", body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"HTTP {answer.status}: {text[:300]!r}")
    return time.perf_counter() - started


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
