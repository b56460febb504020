"""How fast one core turns raw messages into sample messages when it has announced every node and location before.

    python -m benchmarks.streams [--seconds 5] [--series 1000000]

The batches are those of 64 CPUs at 19 Hz in 5 s: 6,080 samples of 40 services and 3,000 stacks of depth 35, which share
prefixes as real ones do. Half of the samples belong to threads with activity. Prints one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from icestream.messages import checks
from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, RAW
from icestream.v1.common_pb2 import Mapping
from streams.operators.series_encoder import SeriesEncoder
from streams.partition.process import Processor
from tests.data.messages import activity_batch, batch_id, raw_batch, raw_series

CPUS, HERTZ, WINDOW_S = 64, 19, 5
SAMPLES = CPUS * HERTZ * WINDOW_S
SERVICES, STACKS, DEPTH, THREADS = 40, 3000, 35, 400
START = 1_700_000_000 * 10**9
WINDOW_NS = WINDOW_S * 10**9


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds to measure (default: 5)")
    parser.add_argument("--series", type=int, default=0, metavar="N", help="also measure N different series")
    args = parser.parse_args(argv)
    print(json.dumps(measure(args.seconds) | (measure_series(args.series) if args.series else {})))
    return 0


def measure_series(count: int) -> dict[str, float]:
    """Checks and encodes `count` different series, in messages of 1,000, and then the last 10,000 of them again."""
    encoder = SeriesEncoder()

    def took_us(first: int, end: int) -> float:
        series = [raw_series(_labels(number)) for number in range(first, end)]
        started = time.perf_counter()
        for labels in checks.labels(series):
            encoder.encode(labels)
        return 1e6 * (time.perf_counter() - started)

    before = _resident_mb()
    new = sum(took_us(first, first + 1000) for first in range(0, count, 1000))
    known = sum(took_us(first, first + 1000) for first in range(count - 10_000, count, 1000))
    return {
        "series": count,
        "new_series_us": round(new / count, 2),
        "known_series_us": round(known / 10_000, 2),
        "series_resident_mb": round(_resident_mb() - before),
    }


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def measure(seconds: float) -> dict[str, float]:
    """Rates and times, warm."""
    processor, random = Processor(), np.random.default_rng(1)
    frames, location_address = _stacks(random)
    durations: list[float] = []
    sequence = size = 0
    deadline = None
    while deadline is None or time.perf_counter() < deadline:
        sequence += 1
        raw, activity = _window(sequence, random, frames, location_address)
        size = len(raw)
        processor.activity(activity, MessageId("bench", ACTIVITY, 0, sequence))
        started = time.perf_counter()
        outputs = processor.raw(raw, MessageId("bench", RAW, 0, sequence))
        took = time.perf_counter() - started
        if not outputs.samples:
            raise RuntimeError("a batch made no samples")
        if sequence == 5:
            deadline = time.perf_counter() + seconds
        elif sequence > 5:
            durations.append(took)
    return {
        "samples_per_second": round(SAMPLES / statistics.median(durations)),
        "samples_per_second_mean": round(SAMPLES * len(durations) / sum(durations)),
        "batch_ms": round(1000 * statistics.median(durations), 3),
        "batches": len(durations),
        "samples_per_batch": SAMPLES,
        "raw_message_bytes": size,
    }


def _stacks(random: "np.random.Generator") -> tuple[np.ndarray, np.ndarray]:
    """Frames (stacks, depth) as location rows, leaf first, and addresses of the locations."""
    tree = random.integers(0, 8, size=(STACKS, DEPTH))
    tree[:, DEPTH // 2 :] = tree[random.integers(0, 100, STACKS), DEPTH // 2 :]  # a hundred ways into the program
    frames = tree + np.arange(DEPTH) * 300 + random.integers(0, 30, size=(STACKS, 1)) * 10
    return frames, random.integers(0x1000, 2**40, size=int(frames.max()) + 1)


def _window(
    sequence: int, random: "np.random.Generator", frames: np.ndarray, location_address: np.ndarray
) -> tuple[bytes, bytes]:
    """Messages of a window: raw, activity."""
    start = START + sequence * WINDOW_NS
    batch = batch_id(sequence, "host")
    columns = {
        "location_mapping": np.arange(len(location_address)) % 40 + 1,
        "location_address": location_address,
        "stack_depth": np.full(STACKS, DEPTH),
        "stack_frames": frames.ravel(),
        "sample_offset_us": np.sort(random.integers(0, WINDOW_NS // 1000, SAMPLES)),
        "sample_series": random.integers(0, SERVICES, SAMPLES),
        "sample_pid": np.ones(SAMPLES),
        "sample_tid": random.integers(1, THREADS, SAMPLES),
        "sample_stack": random.integers(0, STACKS, SAMPLES),
    }
    raw = raw_batch(
        batch, start, columns, period=52_631_579, activity_sequence=sequence,
        mappings=[Mapping()] + [Mapping(kind=Mapping.FILE, build_id=f"gnu:{i:040x}", file=f"/f{i}") for i in range(40)],
        series=[raw_series(_labels(i)) for i in range(SERVICES)],
    )  # fmt: skip
    intervals = 2000
    numbers = np.arange(intervals)
    activity_columns = {
        "interval_start_offset_ns": numbers // (THREADS // 2) * (WINDOW_NS // 10),
        "interval_duration_ns": np.full(intervals, WINDOW_NS // 12),
        "interval_thread_cpu_ns": np.full(intervals, WINDOW_NS // 20),
        "interval_pid": np.ones(intervals),
        "interval_tid": numbers % (THREADS // 2),
        "interval_context": numbers,
        "interval_service": np.ones(intervals),
    }
    activity = activity_batch(
        batch, start, activity_columns, complete_unix_nano=start + WINDOW_NS, strings=["", "checkout"],
        context_trace_ids=random.bytes(16 * intervals), context_span_ids=random.bytes(8 * intervals),
    )  # fmt: skip
    return raw, activity


def _labels(i: int) -> dict[str, str]:
    return {"host": "host", "namespace": "shop", "pod": f"cart-{i}-abcde", "service": f"cart-{i}", "version": "1.4"}


if __name__ == "__main__":
    sys.exit(main())
