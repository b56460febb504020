"""Replays a recording into the demo's broker, as if it happened now."""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from icestream.kafka import producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.raw_pb2 import RawBatch
from standalone.demo.recording import RecordingError, read
from standalone.demo.result import Window
from standalone.demo.run import Demo, DemoError, wait_for_samples

RECORDING = Path(__file__).parent / "shop.recording"
"""Made by `make recording`."""

_FLUSH_S = 30
_MARGIN_NS = 10**9


def replay(found: dict[str, Any], path: Path, stop: threading.Event) -> Demo:
    """Publishes the recording, and waits until all of it can be asked for. Raises DemoError."""
    try:
        messages = list(read(path))
        first, last, samples = _extent(messages)
        by_ns = time.time_ns() - last
        shifted = list(_shifted(messages, by_ns))
    except (RecordingError, DecodeError) as error:
        raise DemoError(f"{path}: {error}") from error
    start, end = first + by_ns - _MARGIN_NS, last + by_ns + _MARGIN_NS
    sender = producer(KafkaSettings(kafka=found["kafka"]))
    for topic, key, value in shifted:
        sender.produce(topic, key=key, value=value)
        sender.poll(0)
    if sender.flush(_FLUSH_S):
        raise DemoError("the broker did not take the recording")
    window = Window(found["addresses"]["api"], start, end)
    wait_for_samples(window, samples, stop)
    return Demo(window, "recording")


def _extent(messages: Iterable[tuple[str, bytes, bytes]]) -> tuple[int, int, int]:
    """First and last moment of the raw batches, in Unix nanoseconds, and how many samples they have."""
    batches = [RawBatch.FromString(value) for topic, _, value in messages if topic == RAW]
    if not batches:
        raise RecordingError("there is no raw batch in it")
    samples = sum(len(batch.sample_stack) for batch in batches)
    return min(b.start_unix_nano for b in batches), max(b.end_unix_nano for b in batches), samples


def _shifted(messages: Iterable[tuple[str, bytes, bytes]], by_ns: int) -> Iterator[tuple[str, bytes, bytes]]:
    """The same, so much later."""
    for topic, key, value in messages:
        if topic == RAW:
            yield topic, key, _shift_raw(RawBatch.FromString(value), by_ns).SerializeToString()
        elif topic == ACTIVITY:
            yield topic, key, _shift_activity(ActivityBatch.FromString(value), by_ns).SerializeToString()
        else:
            yield topic, key, value


def _shift_raw(batch: RawBatch, by_ns: int) -> RawBatch:
    batch.start_unix_nano += by_ns
    batch.end_unix_nano += by_ns
    batch.activity_complete_unix_nano += by_ns
    batch.published_unix_nano = time.time_ns()
    return batch


def _shift_activity(batch: ActivityBatch, by_ns: int) -> ActivityBatch:
    batch.start_unix_nano += by_ns
    batch.complete_unix_nano += by_ns
    batch.published_unix_nano = time.time_ns()
    for span in batch.spans:
        span.start_unix_nano += by_ns
        span.end_unix_nano += by_ns
    return batch
