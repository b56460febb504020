"""A small run of tests/chaos/run.py: processes freeze for seconds, not for longer than a session.

Of the ten kinds of events it has the five that meet each other: Kafka restarts, a backfill of what is being written,
late activity, kill -9, and a process that others take for dead. `make soak` has all kinds, many times.
"""

from pathlib import Path

import pytest

from tests.chaos.run import run
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka]


def test_totals_are_those_of_the_input_whatever_goes_wrong(kafka_jars: None, tmp_path: Path) -> None:
    result = run(tmp_path, seed=4, events=5, patience_s=PATIENCE_S, long_freezes=False)
    assert result.differences == []
    assert result.windows
