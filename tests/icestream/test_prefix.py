"""Two installations in one Kafka: each has its own names, and sees only its own messages."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from icestream import topics
from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.v1.samples_pb2 import SampleBatch
from tests.data.windows import window
from tests.prose import PACKAGES, ROOT
from tests.waiting import PATIENCE_S, wait_until

NAMES = {
    name: value
    for name, value in vars(topics).items()
    if name.isupper() and isinstance(value, str) and value.startswith("icestream.")
}
"""Topics and groups of an installation without a prefix."""
PREFIXES = ("blue.", "green-")
START = 1_700_000_000 * 10**9


def run(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], env=os.environ | environ, capture_output=True, text=True, cwd=ROOT, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip


def test_only_one_module_names_topics_and_groups() -> None:
    """So that no place can forget the prefix."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for package in (*PACKAGES, "examples")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path not in (ROOT / "icestream/topics.py", ROOT / "examples/flat_top.py")  # a reader without icestream
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and (node.value in NAMES.values() or node.value.startswith("icestream.collector."))
    ]  # fmt: skip
    assert found == []
    assert len(NAMES) >= 15


def test_every_name_has_the_prefix_of_the_variable_or_of_the_flag() -> None:
    script = "import json; from icestream import topics; print(json.dumps([getattr(topics, n) for n in %r]))" % [*NAMES]
    answer = run("-c", script, ICESTREAM_KAFKA_PREFIX="blue.")
    assert json.loads(answer.stdout) == [f"blue.{name}" for name in NAMES.values()]
    told = run("-m", "icestream.cli", "tail", "--kafka-prefix", "green-", "--help", ICESTREAM_KAFKA_PREFIX="blue.")
    assert "green-icestream.samples" in told.stdout
    assert "blue." not in told.stdout
    refused = run("-m", "icestream.cli", "topics", "list", ICESTREAM_KAFKA_PREFIX="a b")
    assert (refused.returncode, refused.stderr) == (
        2,
        "icestream topics: ICESTREAM_KAFKA_PREFIX: expected at most 100 letters, digits, '.', '_' and '-', got 'a b'\n",
    )


@pytest.mark.pipeline
def test_installations_with_different_prefixes_see_only_their_own(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    workers = [start(in_process_broker, prefix, tmp_path / prefix) for prefix in PREFIXES]
    try:
        sender = clients.producer(in_process_broker)
        for number, prefix in enumerate(PREFIXES):
            for sequence in range(1, 4 + number):
                made = window(START, sequence, host=number)
                sender.produce(f"{prefix}icestream.activity", made.activity, key=prefix)
                sender.produce(f"{prefix}icestream.raw", made.raw, key=prefix)
        assert sender.flush(PATIENCE_S) == 0
        for number, prefix in enumerate(PREFIXES):
            wait_until(lambda prefix=prefix, number=number: len(samples(in_process_broker, prefix)) >= 3 + number)
            batches = samples(in_process_broker, prefix)
            assert {batch.host_id for batch in batches} == {f"host-{number}"}
            assert {batch.source.topic for batch in batches} <= {
                f"{prefix}icestream.raw",
                f"{prefix}icestream.activity",
            }
        assert read(in_process_broker, topics.SAMPLES) == []
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(PATIENCE_S)


def start(broker: KafkaSettings, prefix: str, folder: Path) -> "subprocess.Popen[bytes]":
    """Makes the topics of an installation and starts its stream worker."""
    environ = broker.environ() | {
        "ICESTREAM_KAFKA_PREFIX": prefix, "ICESTREAM_SYMBOL_CACHE": str(folder),
        "ICESTREAM_METRICS_LISTEN": "127.0.0.1:0",
        "ICESTREAM_MAX_LATE_DAYS": "36500", "ICESTREAM_ATTACH_WAIT_S": "0",
    }  # fmt: skip
    made = run("-m", "icestream.cli", "topics", "create", **environ)
    assert f"{prefix}icestream.raw" in made.stdout, made.stderr
    return subprocess.Popen([sys.executable, "-m", "icestream.cli", "streams"], env=os.environ | environ, cwd=ROOT)


def samples(broker: KafkaSettings, prefix: str) -> list[SampleBatch]:
    return [SampleBatch.FromString(value) for value in read(broker, f"{prefix}icestream.samples")]


def read(broker: KafkaSettings, topic: str) -> list[bytes]:
    """All messages of a topic."""
    reader = clients.consumer(broker, "test", **{"enable.partition.eof": True})
    partitions = reader.list_topics(topic, timeout=300).topics[topic].partitions
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = reader.poll(PATIENCE_S)
        assert message is not None
        if (error := message.error()) is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
    reader.close()
    return found
