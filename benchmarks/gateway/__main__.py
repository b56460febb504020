"""What profiles cost whose names come with them, as SDKs push them: in each process, in Kafka, and when stored.

    python -m benchmarks.gateway [--profiles 2000] [--senders 4]

Each profile is of ten seconds of one of 10 services: 150 samples of its 2,000 stacks, which are 10 to 60 deep and share
prefixes, in 1,500 functions. It is pprof in gzip, pushed over HTTP to a gateway. The gateway, a stream worker, the
store (the ClickHouse sink, resolve and the archive, on the embedded engine) and an Apache Kafka (`make kafka`) are
processes of their own. Their CPU is read after the first profile, and again when all profiles are stored.

Prints one JSON object: an ack comes when Kafka has the profile, rows are samples, and CPU seconds are user and system
time. `cpu_s_for_18000_profiles` is what each process took, scaled; `streams_*` is measured in this process, without
Kafka: for stacks that were known, and with two new stacks in each profile. Bytes are those of Kafka's log of
`icestream.raw`, of the archive, and of the tables after merging.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.fleet import stored_tables
from benchmarks.gateway.profiles import SAMPLES, make_profiles
from benchmarks.gateway.running import PARTS, cpu_seconds, start_parts, wait_until_archived, wait_until_stored
from gateway.encode import encode
from gateway.readers.pprof import Source, read_pprof
from gateway.unpack import unpack
from icestream.commands.topics import create
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_TIME
from icestream.topics import RAW
from standalone.supervisor.local_kafka import LocalKafka
from streams.partition.process import Processor
from tests.pipeline.reading import messages
from tests.pipeline.running import Pipeline

_SCALED = 18_000
_NEW_STACKS, _NEW_STACKS_PROFILES = 2, 2000
_UNPACKED = 2**28


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--senders", type=int, default=4, help="at the same time (default: 4)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="icestream-gateway-") as folder:
        print(json.dumps(measure(Path(folder), make_profiles(args.profiles), args.senders)))
    return 0


def measure(folder: Path, profiles: list[tuple[int, bytes]], senders: int) -> dict[str, object]:
    """`profiles`: the number of the service, and the body."""
    (folder / "data").mkdir()
    kafka = LocalKafka(folder / "kafka")
    kafka.start()
    create(kafka.settings(), partitions=2, replication=1)
    pipeline = Pipeline(kafka.settings(), folder / "data")
    try:
        start_parts(pipeline)
        push(pipeline.gateway, *profiles[0])  # imports, connections
        wait_until_stored(pipeline)
        wait_until_archived(pipeline)
        before, started = cpu_seconds(pipeline, kafka), time.perf_counter()
        with ThreadPoolExecutor(senders) as pool:
            acknowledged = list(pool.map(lambda one: push(pipeline.gateway, *one), profiles[1:]))
        took = time.perf_counter() - started
        wait_until_stored(pipeline)
        after = cpu_seconds(pipeline, kafka)  # Kafka's: now, because whoever asks for lags takes it too
        wait_until_archived(pipeline)
        after |= {"store": cpu_seconds(pipeline, kafka)["store"]}
        published = [message.value() or b"" for message in messages(pipeline.settings, RAW)]
        for name in PARTS:
            pipeline.stop(name)
    finally:
        pipeline.close()
        kafka.close()
    used = {name: after[name] - before[name] for name in after}
    return {
        "profiles": len(profiles),
        "rows": SAMPLES * len(profiles),
        "profiles_per_second": round(len(acknowledged) / took),
        "ack_ms_p50": round(1000 * statistics.median(acknowledged), 1),
        "ack_ms_p99": round(1000 * statistics.quantiles(acknowledged, n=100)[98], 1),
        "gateway_cpu_ms_per_profile": round(1000 * used["gateway"] / len(acknowledged), 2),
        "gateway_profiles_per_cpu_s": round(len(acknowledged) / used["gateway"]),
        "cpu_s_for_18000_profiles": _scaled(used, _SCALED / len(acknowledged)),
        **streams_figures(published, make_profiles(min(len(profiles), _NEW_STACKS_PROFILES), _NEW_STACKS)),
        **_bytes(folder, sum(len(body) for _, body in profiles), SAMPLES * len(profiles)),
    }


def streams_figures(published: list[bytes], with_new_stacks: list[tuple[int, bytes]]) -> dict[str, float]:
    """Measures streams with messages that the gateway has published, and with profiles that have new stacks."""
    known_s, new = process(published), [message for _, body in with_new_stacks for message in _encoded(body)]
    new_s = process(new)
    return {
        "streams_cpu_ms_per_profile": round(1000 * known_s / len(published), 2),
        "streams_rows_per_cpu_s": round(SAMPLES * len(published) / known_s),
        "streams_rows_per_cpu_s_with_2_new_stacks": round(SAMPLES * len(new) / new_s),
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


def push(address: str, service: int, body: bytes) -> float:
    """Returns the seconds until the gateway answers that Kafka has it."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection(address)
    connection.request("POST", f"/api/v1/ingest/pprof?service=service-{service}&pod=pod-{service}", body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"HTTP {answer.status}: {text[:300]!r}")
    return time.perf_counter() - started


def _encoded(body: bytes) -> list[bytes]:
    """The messages that the gateway publishes of a profile."""
    source = Source((("pod", "pod-1"), ("service", "service-1")))
    return encode(read_pprof(unpack(body, _UNPACKED), source, max_series=100), ANY_TIME).messages


def _scaled(used: dict[str, float], factor: float) -> dict[str, float]:
    behind = sum(used.values()) - used["gateway"]
    figures = used | {"sum_without_gateway": behind, "sum": behind + used["gateway"]}
    return {name: round(seconds * factor, 1) for name, seconds in figures.items()}


def _bytes(folder: Path, sent: int, rows: int) -> dict[str, object]:
    """Call it when all processes have ended."""
    in_kafka = sum(log.stat().st_size for log in (folder / "kafka").rglob(f"{RAW}-*/*.log"))
    archive = sum(file.stat().st_size for file in (folder / "data" / "archive").rglob("*.parquet"))
    tables = {name: table.size for name, table in stored_tables(folder).items()}
    stored = sum(tables.values())
    return {
        "sent_mb": round(sent / 1e6, 2),
        "kafka_mb": round(in_kafka / 1e6, 2),
        "kafka_over_sent": round(in_kafka / sent, 2),
        "bytes_per_row": {
            "sent": round(sent / rows, 1),
            "kafka": round(in_kafka / rows, 1),
            "archive": round(archive / rows, 1),
            "tables": round(stored / rows, 1),
            "samples": round(tables["samples"] / rows, 1),
        },
        "archive_over_tables": round(archive / stored, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
