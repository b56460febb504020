"""The example consumer, run as a user runs it."""

import subprocess
import sys
import time
from pathlib import Path

from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS
from tests.icestream.test_tail import sample_batch, send, stack_batch

EXAMPLE = Path(__file__).parents[2] / "examples" / "top_functions.py"


def test_the_example_keeps_a_top_of_functions_and_counts_what_comes_twice_once(broker: KafkaSettings) -> None:
    samples = sample_batch()
    send(broker, (STACKS, stack_batch().SerializeToString()), (SAMPLES, samples), (SAMPLES, samples))
    wanted = {"     0.01 s  0000000000000063\n", "     0.01 s  inlined\n"}
    with subprocess.Popen([sys.executable, str(EXAMPLE), broker.kafka], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 120
        top: set[str] = set()
        while not wanted <= top and time.monotonic() < deadline:
            line = process.stdout.readline()
            top = top | {line} if line != "\n" else set()
        process.terminate()
    assert top == wanted
