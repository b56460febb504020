"""Python functions in the batches that the collector publishes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from icestream.settings import KafkaSettings
from icestream.topics import RAW
from icestream.v1.common_pb2 import Mapping
from tests.collector.test_agent import batches, collecting
from tests.pipeline.reading import follow
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf
PROGRAM = Path(__file__).parent / "known.py"


@pytest.fixture
def reader(in_process_broker: KafkaSettings) -> Iterator[Consumer]:
    reading = follow(in_process_broker, RAW)
    yield reading
    reading.close()


def test_batches_name_python_functions_with_file_and_line(
    in_process_broker: KafkaSettings, reader: Consumer, tmp_path: Path
) -> None:
    found: set[tuple[str, int]] = set()
    command = [sys.executable, str(PROGRAM), "nested"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin
        with collecting(in_process_broker, tmp_path):
            process.stdin.write(b"\n")
            process.stdin.flush()
            for batch in batches(reader, PATIENCE_S):
                for location, mapping in enumerate(batch.location_mapping):
                    if batch.mappings[mapping].kind == Mapping.NAMED and batch.location_function:
                        strings, file = batch.strings, batch.location_file[location]
                        if strings[file] == str(PROGRAM):
                            found.add((strings[batch.location_function[location]], batch.location_line[location]))
                if {"burn", "generate", "<module>"} <= {function for function, _ in found}:
                    break
        process.stdin.close()
    lines = PROGRAM.read_text().splitlines()
    assert {"burn", "generate", "<module>"} <= {function for function, _ in found}
    assert {lines[line - 1].strip() for function, line in found if function == "generate"} <= {
        "for i in range(n):",
        "yield sum(Shop(3 + i).price([200, 300]) and burn(j) for j in [100, 200])",
        "def generate(n):",
    }
