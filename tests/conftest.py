"""Brokers for all tests: the in-process one, and a real Apache Kafka where its jars are (in CI: always)."""

from collections.abc import Iterator

import pytest

from icestream.settings import KafkaSettings
from standalone.broker import InProcessBroker


@pytest.fixture
def in_process_broker() -> Iterator[KafkaSettings]:
    """Settings of a fresh in-process broker with all topics."""
    broker = InProcessBroker()
    yield broker.settings()
    broker.close()
