"""A listening collector, and tracing that is on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream import tracing
from tests.tracing.traced import Listener


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path / "activity.sock")
    yield listener
    tracing.stop()  # also where a test failed before it did
    listener.close()


@pytest.fixture
def started(listener: Listener) -> Iterator[Listener]:
    tracing.start(service="tested", socket=listener.path)
    yield listener
    tracing.stop()
