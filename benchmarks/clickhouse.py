"""How fast the ClickHouse sink stores samples on the embedded engine, and how many bytes a sample takes on disk.

    python -m benchmarks.clickhouse [--batches 400]

The batches are those of 64 CPUs at 19 Hz in 5 s: 6,080 samples of 40 services and 400 threads. Each service has stacks
of its own, and few are hot. A tenth of the samples are in a trace. Prints one JSON object; bytes are those after
merging.
"""

import argparse
import json
import sys
import tempfile
import time

import numpy as np

from icestream.clickhouse.client import Clients
from icestream.messages.message_id import MessageId
from icestream.topics import SAMPLES
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode
from tests.data.messages import batch_id, sample_batch, sample_series, source

ROWS, SERVICES, STACKS, THREADS, HOSTS = 6080, 40, 75, 400, 20
START_MS = 1_770_000_000_000
A_RANGE = 20  # batches a second, inserted together


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=400, help="batches of 6,080 samples to store (default: 400)")
    print(json.dumps(measure(parser.parse_args(argv).batches)))
    return 0


def measure(batches: int) -> dict[str, float]:
    """Rates and sizes."""
    random = np.random.default_rng(1)
    messages = [message(random, i % HOSTS, i // HOSTS) for i in range(batches)]
    with tempfile.TemporaryDirectory() as folder:
        clients = Clients(f"chdb://{folder}/db")
        migrate(clients.get())
        sink = ClickHouseSink(clients)
        decode_s = insert_s = 0.0
        for first in range(0, batches, A_RANGE):
            started = time.perf_counter()
            decoded = [decode(data, MessageId("C", SAMPLES, 0, 0)) for data in messages[first : first + A_RANGE]]
            read = time.perf_counter()
            offsets = InFlight(first, first + len(decoded) - 1, "0" * 12)
            sink.write(MessageRange("C", SAMPLES, 0, offsets, decoded, False))
            decode_s, insert_s = decode_s + read - started, insert_s + time.perf_counter() - read
        sizes = _sizes(clients)
        clients.discard()
    rows = batches * ROWS
    return {
        "clickhouse_decoded_per_second": round(rows / decode_s),
        "clickhouse_inserted_per_second": round(rows / insert_s),
        "clickhouse_bytes_a_sample": round(sum(sizes.values()) / rows, 2),
        **{f"clickhouse_bytes_a_sample_{table}": round(size / rows, 2) for table, size in sizes.items()},
    }


def message(random: np.random.Generator, host: int, window: int, start_ms: int = START_MS) -> bytes:
    """A SampleBatch."""
    host_id = f"host-{host}"
    thread = np.sort(random.integers(0, THREADS, ROWS))
    service = thread % SERVICES
    stack = (service * STACKS + np.minimum(random.zipf(1.4, ROWS), STACKS) - 1).astype(np.uint64)
    traces = random.integers(0, 256, (30, 24)).astype(np.uint8)
    context = np.where(random.random(ROWS) < 0.1, random.integers(1, 31, ROWS), 0)
    return sample_batch(
        source(batch_id(window + 1, host_id), offset=window * HOSTS + host), start_ms + window * 5000,
        {
            "sample_offset_ms": np.sort(random.integers(0, 5000, ROWS)),
            "sample_series": service,
            "sample_pid": 1000 + service,
            "sample_tid": 1000 + thread,
            "sample_stack_id": stack * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1),
            "sample_context": context,
            "sample_count": np.ones(ROWS),
            "sample_value": np.full(ROWS, 52_631_579),
        },
        series=[sample_series({"host": host_id, "service": f"service-{i}"}) for i in range(SERVICES)],
        context_trace_ids=traces[:, :16].tobytes(), context_span_ids=traces[:, 16:].tobytes(),
    )  # fmt: skip


def _sizes(clients: Clients) -> dict[str, int]:
    """Bytes on disk of each table, merged."""
    tables = ("samples", "trace_samples", "batches", "series")
    for table in tables:
        clients.get().command(f"OPTIMIZE TABLE {table} FINAL")
    rows = clients.get().query(
        "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase() GROUP BY 1"
    )
    sizes = {str(table): int(size) for table, size in rows.result_rows}
    return {table: sizes.get(table, 0) for table in tables}


if __name__ == "__main__":
    sys.exit(main())
