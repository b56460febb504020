"""The example consumer, run as a user runs it."""

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from icestream.settings import KafkaSettings
from icestream.topics import OFF_CPU_PROFILE_TYPE, PREFIX, SAMPLES, STACKS
from icestream.v1.samples_pb2 import SampleBatch
from tests.icestream.test_tail import sample_batch, send, stack_batch
from tests.waiting import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "top_functions.py"


def test_the_example_keeps_a_top_of_functions_and_counts_what_comes_twice_once(broker: KafkaSettings) -> None:
    """And counts CPU only, not the waits that come before it."""
    samples = sample_batch()
    waits = SampleBatch.FromString(samples)
    waits.profile_type = OFF_CPU_PROFILE_TYPE
    waits.source.partition = 1
    waits.sample_value[:] = [10**9, 10**9]
    send(broker, (STACKS, stack_batch().SerializeToString()), (SAMPLES, waits.SerializeToString()))
    send(broker, (SAMPLES, samples), (SAMPLES, samples))
    wanted = {"     0.01 s  0000000000000063\n", "     0.01 s  inlined\n"}
    assert top(broker, wanted) == wanted


def test_the_example_still_knows_names_when_it_is_started_again(in_process_broker: KafkaSettings) -> None:
    send(in_process_broker, (STACKS, stack_batch().SerializeToString()))
    commit_all(in_process_broker, STACKS)
    send(in_process_broker, (SAMPLES, sample_batch()))
    wanted = {"     0.01 s  0000000000000063\n", "     0.01 s  inlined\n"}
    assert top(in_process_broker, wanted) == wanted


def commit_all(broker: KafkaSettings, topic: str) -> None:
    """Commits what was published so far, as an earlier run of the example did."""
    client = Consumer({"bootstrap.servers": broker.kafka, "group.id": f"{PREFIX}top"})
    partitions = list(client.list_topics(topic, timeout=300).topics[topic].partitions)
    ends = [client.get_watermark_offsets(TopicPartition(topic, each), timeout=300)[1] for each in partitions]
    offsets = [TopicPartition(topic, each, end) for each, end in zip(partitions, ends, strict=True)]
    client.commit(offsets=offsets, asynchronous=False)
    client.close()


def top(broker: KafkaSettings, wanted: set[str]) -> set[str]:
    """The last list that the example prints, once it has all that is wanted."""
    with subprocess.Popen([sys.executable, str(EXAMPLE), broker.kafka], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        found: set[str] = set()
        while not wanted <= found and time.monotonic() < deadline:
            line = process.stdout.readline()
            found = found | {line} if line != "\n" else set()
        process.terminate()
    return found
