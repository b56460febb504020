"""examples/kafka-streams on a real Kafka, beside `icestream flatten`.

`make soak` runs it: it needs a JDK and Maven, which fetches 100 MB once, and the group waits 10 seconds for the program
that was killed.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from icestream.kafka.clients import client_config, producer
from icestream.settings import KafkaSettings
from icestream.topics import FLAT, SAMPLES, STACKS
from tests.conftest import delete_topics
from tests.icestream.test_tail import send, stack_batch
from tests.streams.test_flatten import running, sample_batch
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("javac")), reason="needs Maven and a JDK"),
]
ROOT = Path(__file__).parents[2]
COMMAND = ["mvn", "-q", "-B", "-f", "examples/kafka-streams", "compile", "exec:java"]
_MAVEN_COLOURS = re.compile(r"\x1b\[\d*m")


class Printed:
    """What the program says: the last CPU in seconds of a minute, a service and a function."""

    def __init__(self) -> None:
        self.cpu_s: dict[tuple[str, str, str], float] = {}
        self.other: list[str] = []

    def all(self) -> str:
        return f"{self.cpu_s}\n{''.join(self.other)}"

    def read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            match _MAVEN_COLOURS.sub("", line).rstrip("\n").split("\t"):
                case [minute, cpu_s, service, function]:
                    self.cpu_s[minute, service, function] = float(cpu_s)
                case _:
                    self.other.append(line)


@contextmanager
def program(settings: KafkaSettings, folder: Path) -> Iterator[Printed]:
    """Runs the example, and kills it at the end."""
    printed = Printed()
    with subprocess.Popen(
        [*COMMAND, f"-Dexec.args={settings.kafka}"], cwd=ROOT, start_new_session=True, text=True,
        env=os.environ | {"MAVEN_OPTS": f"-Djava.io.tmpdir={folder}"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        reader = threading.Thread(target=printed.read, args=(process,))
        reader.start()
        try:
            yield printed
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            reader.join()


@pytest.fixture
def kafka(apache_kafka: KafkaSettings) -> Iterator[KafkaSettings]:
    yield apache_kafka
    topics = AdminClient(client_config(apache_kafka)).list_topics(timeout=60).topics
    delete_topics(apache_kafka, [name for name in topics if name.startswith("function-cpu-")])


def test_it_sums_up_each_record_once_whatever_is_killed(kafka: KafkaSettings, tmp_path: Path) -> None:
    # Kafka deletes the program's state by the times of samples: START_MS would be too old.
    start_ms = (int(time.time()) // 60 - 2) * 60_000
    minute = datetime.fromtimestamp(start_ms // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    send(kafka, (STACKS, stack_batch().SerializeToString()), (SAMPLES, sample_batch(1, start_ms)))
    broken = producer(kafka)
    broken.produce(FLAT, b"no JSON", key="host-1", partition=0)
    broken.produce(FLAT, None, key="host-1", partition=0)
    assert broken.flush(30) == 0

    def expected(batches: int) -> dict[tuple[str, str, str], object]:
        sums = {"inlined": 0.015 * batches, "[no stack]": 0.005 * batches}
        return {(minute, "shop", function): pytest.approx(cpu_s) for function, cpu_s in sums.items()}

    with running(kafka, 200):
        with program(kafka, tmp_path) as printed:
            wait_until(lambda: printed.cpu_s == expected(1), printed.all)
            send(kafka, (SAMPLES, sample_batch(2, start_ms)))
            wait_until(lambda: printed.cpu_s == expected(2), printed.all)
        send(kafka, (SAMPLES, sample_batch(3, start_ms)))
        with program(kafka, tmp_path) as printed:
            wait_until(lambda: printed.cpu_s == expected(3), printed.all)
