"""Good messages of every topic that a part reads, to be mutated: small ones, of hosts and services of their own."""

import random
import time

import numpy as np
import zstandard
from google.protobuf.message import Message

from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS, SYMBOLS
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from icestream.v1.symbols_pb2 import SymbolFile
from tests.data.messages import (
    activity_batch,
    batch_id,
    contexts,
    raw_batch,
    raw_series,
    sample_batch,
    sample_series,
    source,
    stack_batch,
)
from tests.fuzz.mutate import mutate

_LABELS = ({"service": "fuzz", "host": "fuzz-1"}, {"service": "fuzz-2", "pod": "p"})
_MAPPINGS = [Mapping(), Mapping(kind=Mapping.FILE, build_id="gnu:f0", file="/f"), Mapping(kind=Mapping.NAMED, file="j")]
_ROWS = 12
_IDS = np.arange(1, 9, dtype=np.uint64) + np.uint64(2**60)
TOPICS = (RAW, ACTIVITY, SAMPLES, STACKS, SYMBOLS)


class Mutants:
    """Mutated messages, from the seed; the unchanged ones would be new batches."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        start = time.time_ns() - 300 * 10**9
        kinds = {RAW: RawBatch, ACTIVITY: ActivityBatch, SAMPLES: SampleBatch, STACKS: StackBatch, SYMBOLS: SymbolFile}
        good = {RAW: _raw(start), ACTIVITY: _activity(start), SAMPLES: _samples(start), STACKS: _stacks(start)}
        good[SYMBOLS] = _symbols()
        self._good: dict[str, Message] = {topic: kinds[topic].FromString(data) for topic, data in good.items()}

    def next(self, topic: str, number: int) -> bytes:
        """The mutated message `number` of a topic."""
        message = type(self._good[topic])()
        message.CopyFrom(self._good[topic])
        if topic in (RAW, ACTIVITY):
            message.id.sequence = number + 1
        elif topic in (SAMPLES, STACKS):
            message.source.batch.sequence = message.source.offset = number + 1
        else:
            message.build_id = f"gnu:{number % 1000:x}"
        return mutate(message, self._draw)


def _raw(start: int) -> bytes:
    return raw_batch(
        batch_id(host="fuzz-1"), start,
        {
            "location_mapping": [1, 1, 2, 2], "location_address": [16, 32, 0, 0], "location_function": [0, 0, 1, 2],
            "location_file": [0, 0, 3, 3], "location_line": [0, 0, 5, 6],
            "location_line_count": [2, 0, 0, 0], "line_function": [1, 2], "line_file": [3, 0], "line_number": [7, 8],
            "line_start_line": [0, 6],
            "stack_depth": [2, 3, 0], "stack_frames": [0, 1, 1, 2, 3],
            "sample_offset_us": np.arange(_ROWS) * 400_000, "sample_series": np.arange(_ROWS) % 2,
            "sample_tid": np.arange(_ROWS) % 3, "sample_stack": np.arange(_ROWS) % 3,
            "sample_context": np.arange(_ROWS) % 2, "sample_count": np.ones(_ROWS),
            "sample_value": np.full(_ROWS, 10_000_000),
        },
        strings=["", "f", "g", "a.js"], mappings=_MAPPINGS, series=[raw_series(labels) for labels in _LABELS],
        **contexts([b"fuzz" * 6]),
    )  # fmt: skip


def _activity(start: int) -> bytes:
    rows = np.arange(4)
    return activity_batch(
        batch_id(host="fuzz-1"), start,
        {
            "interval_start_offset_ns": rows * 10**9, "interval_duration_ns": np.full(4, 5 * 10**8),
            "interval_thread_cpu_ns": np.full(4, 10**8), "interval_tid": rows % 3, "interval_service": np.ones(4),
        },
        complete_unix_nano=start + 5 * 10**9, strings=["", "fuzz"],
        spans=[Span(trace_id=b"fuzz" * 4, span_id=b"fuzzfuzz", name="GET", service="fuzz", start_unix_nano=start,
                    end_unix_nano=start + 10**9)],
        **contexts([b"fuzz" * 6]),
    )  # fmt: skip


def _samples(start: int) -> bytes:
    return sample_batch(
        source(batch_id(host="fuzz-2")), start // 10**6,
        {
            "sample_offset_ms": np.arange(_ROWS) * 400, "sample_series": np.arange(_ROWS) % 2,
            "sample_stack_id": _IDS[np.arange(_ROWS) % len(_IDS)], "sample_context": np.arange(_ROWS) % 2,
        },
        published_unix_nano=start, series=[sample_series(labels) for labels in _LABELS], **contexts([b"fuzz" * 6]),
    )  # fmt: skip


def _stacks(start: int) -> bytes:
    return stack_batch(
        {
            "node_id": _IDS, "node_parent_id": np.concatenate([[0], _IDS[:-1]]).astype(np.uint64),
            "node_location_id": _IDS, "location_id": _IDS, "location_address": _IDS,
            "location_version": np.ones(len(_IDS)), "location_line_count": np.ones(len(_IDS)),
            "line_function": np.ones(len(_IDS)), "line_file": np.full(len(_IDS), 2),
            "line_number": np.arange(len(_IDS)), "line_start_line": np.ones(len(_IDS)),
        },
        source=source(batch_id(host="fuzz-2")), published_unix_nano=start, seen_unix_nano=start,
        strings=["", "f", "a.js"], mappings=_MAPPINGS,
    )  # fmt: skip


def _symbols() -> bytes:
    data = random.Random(1).randbytes(500)
    file = SymbolFile(
        build_id="gnu:f0", host_id="fuzz-1", version=1, chunk=0, chunks=1, size=len(data), sha256="0" * 64
    )
    file.data = zstandard.compress(data)
    return file.SerializeToString()
