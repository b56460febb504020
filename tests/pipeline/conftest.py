"""A running pipeline on each broker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.settings import KafkaSettings
from tests.data.windows import WINDOW_NS
from tests.pipeline.running import Pipeline


@pytest.fixture
def pipeline(broker: KafkaSettings, tmp_path: Path) -> Iterator[Pipeline]:
    """Store and stream worker on each of the brokers."""
    yield from _running(broker, tmp_path)


@pytest.fixture
def kafka_pipeline(apache_kafka: KafkaSettings, tmp_path: Path) -> Iterator[Pipeline]:
    """Store and stream worker on Apache Kafka."""
    yield from _running(apache_kafka, tmp_path)


@pytest.fixture
def embedded_pipeline(in_process_broker: KafkaSettings, tmp_path: Path) -> Iterator[Pipeline]:
    """Store and stream worker on the in-process broker."""
    yield from _running(in_process_broker, tmp_path)


@pytest.fixture
def start_unix_nano() -> int:
    """Where made-up windows begin: ten minutes ago, at a whole window."""
    return (time.time_ns() - 600 * 10**9) // WINDOW_NS * WINDOW_NS


def _running(settings: KafkaSettings, data: Path) -> Iterator[Pipeline]:
    running = Pipeline(settings, data)
    try:
        running.start("store")
        running.start("streams")
        running.wait(lambda: running.get("/readyz"), lambda answer: answer["status"] == "ready")
        yield running
    finally:
        running.close()
