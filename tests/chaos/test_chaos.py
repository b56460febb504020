"""Ten events, one of each kind (see tests/chaos/run.py)."""

from pathlib import Path

import pytest

from tests.chaos.run import run
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka]


def test_totals_are_exact_in_both_stores_after_one_event_of_each_kind(kafka_in_id: None, tmp_path: Path) -> None:
    result = run(tmp_path, seed=238, events=10, patience_s=PATIENCE_S, long_freezes=False)
    assert result.windows > 200
    assert result.differences == []
