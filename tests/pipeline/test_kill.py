"""Kill -9 of every process, repeatedly, on Apache Kafka: totals agree with the input.

`make soak` runs it: in CI, tests/chaos kills each of them beside other faults, and compares more.
"""

import random
import time

import pytest

from tests.data.windows import WINDOW_NS, window
from tests.pipeline.running import Pipeline
from tests.pipeline.test_behaviour import expected_traces

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka, pytest.mark.soak]


@pytest.mark.parametrize("victim", ["streams", "store"])
def test_totals_agree_after_kills(kafka_pipeline: Pipeline, start_unix_nano: int, victim: str) -> None:
    pipeline, when = kafka_pipeline, random.Random(victim)
    made = []
    for sequence in range(1, 41):
        for host in range(2):
            made.append(window(start_unix_nano, sequence, host))
            pipeline.publish(made[-1], host)
        if sequence % 8 == 0:
            time.sleep(when.uniform(0, 3))
            pipeline.kill(victim)
            pipeline.start(victim)
    start, end = start_unix_nano, start_unix_nano + 40 * WINDOW_NS
    expected = sum(m.value for m in made)
    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total >= expected)
    pipeline.settle()  # whatever came twice is there by now
    assert pipeline.total(start, end) == expected
    got = {trace: pipeline.get(f"/api/v1/traces/{trace}/cpu")["sampled_cpu_ns"] for trace in expected_traces(made)}
    assert got == expected_traces(made)
