"""A small run of tests/fuzz/run.py: two hundred mutated messages a topic."""

from pathlib import Path

import pytest

from icestream.settings import KafkaSettings
from tests.fuzz.run import run
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka]


def test_mutated_messages_neither_end_a_process_nor_change_good_totals(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    result = run(tmp_path, messages=200, seed=1, patience_s=PATIENCE_S, settings=apache_kafka)
    assert result.differences == []
    assert result.figures["dead_letters"]
