"""A small run of tests/chaos/run.py: processes freeze for seconds, not for longer than a session.

It has those five of the seventeen kinds of events that meet each other: Kafka restarts, a backfill of what is being
written, late activity, kill -9, and a process that others take for dead. `make soak` has all kinds, many times.
"""

from pathlib import Path

import pytest

from tests.chaos.events import EVENTS
from tests.chaos.run import run
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka]

KINDS = {"broker", "backfill", "late activity", "kill -9", "freeze"}


def test_totals_are_those_of_the_input_whatever_goes_wrong(kafka_jars: None, tmp_path: Path) -> None:
    assert EVENTS.keys() >= KINDS
    others = EVENTS.keys() - KINDS  # each kind happens once before one happens again, whatever the seed draws
    result = run(tmp_path, seed=4, events=len(KINDS), patience_s=PATIENCE_S, long_freezes=False, without=others)
    assert result.differences == []
    assert result.windows
