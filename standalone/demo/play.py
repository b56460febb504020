"""Plays a recording into the demo's broker, with its times moved to now."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from collector.delivery.message_log import Message
from icestream.files.run_info import RunInfo
from icestream.kafka.clients import producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.raw_pb2 import RawBatch
from standalone.demo.recording import RecordingError, read_recording
from standalone.demo.report import QueryRange
from standalone.demo.run import DemoError, wait_for_samples

RECORDING = Path(__file__).parent / "shop.recording"
"""Made by `make recording`."""

_FLUSH_S = 30
_MARGIN_NS = 10**9


@dataclass(frozen=True)
class Recorded:
    """What a recording holds; `raw` are its raw batches."""

    messages: list[Message]
    raw: list[RawBatch]


def load_recording(path: Path) -> Recorded:
    """Reads and checks a recording. Raises DemoError."""
    try:
        messages = list(read_recording(path))
        raw = [RawBatch.FromString(message.value) for message in messages if message.topic == RAW]
        if not raw:
            raise RecordingError("it has no raw batch")
        for message in messages:
            if message.topic == ACTIVITY:
                ActivityBatch.FromString(message.value)
    except (RecordingError, DecodeError) as error:
        raise DemoError(f"{path}: {error}") from error
    return Recorded(messages, raw)


def play_recording(info: RunInfo, recorded: Recorded, stop: threading.Event) -> QueryRange:
    """Publishes the recording, and waits until the API has all of its samples. Raises DemoError and CommandError."""
    batches = recorded.raw
    shift_ns = time.time_ns() - max(batch.end_unix_nano for batch in batches)
    sender = producer(KafkaSettings(kafka=info.kafka))
    for message in _shifted(recorded.messages, shift_ns):
        sender.produce(message.topic, key=message.key, value=message.value)
        sender.poll(0)
    if sender.flush(_FLUSH_S):
        raise DemoError("the broker did not take the recording")
    profiled = QueryRange(
        info.addresses["api"],
        min(batch.start_unix_nano for batch in batches) + shift_ns - _MARGIN_NS,
        max(batch.end_unix_nano for batch in batches) + shift_ns + _MARGIN_NS,
    )
    wait_for_samples(profiled, sum(len(batch.sample_stack) for batch in batches), stop)
    return profiled


def _shifted(messages: list[Message], shift_ns: int) -> Iterator[Message]:
    """Yields the messages with all their times that much later."""
    for message in messages:
        if message.topic == RAW:
            yield message._replace(value=_shift_raw(RawBatch.FromString(message.value), shift_ns).SerializeToString())
        elif message.topic == ACTIVITY:
            batch = _shift_activity(ActivityBatch.FromString(message.value), shift_ns)
            yield message._replace(value=batch.SerializeToString())
        else:
            yield message


def _shift_raw(batch: RawBatch, shift_ns: int) -> RawBatch:
    batch.start_unix_nano += shift_ns
    batch.end_unix_nano += shift_ns
    batch.activity_complete_unix_nano += shift_ns
    batch.published_unix_nano = time.time_ns()
    return batch


def _shift_activity(batch: ActivityBatch, shift_ns: int) -> ActivityBatch:
    batch.start_unix_nano += shift_ns
    batch.complete_unix_nano += shift_ns
    batch.published_unix_nano = time.time_ns()
    for span in batch.spans:
        span.start_unix_nano += shift_ns
        span.end_unix_nano += shift_ns
    return batch
