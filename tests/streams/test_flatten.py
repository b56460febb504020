"""`icestream flatten` on both brokers, and the example that reads what it publishes."""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from icestream.commands.topics import create
from icestream.kafka.clients import client_config, producer
from icestream.messages.stack_names import StackNames
from icestream.settings import KafkaSettings
from icestream.topics import (
    DEFAULT_PROFILE_TYPE,
    FLAT,
    FLATTEN_GROUP,
    MAX_MESSAGE_BYTES,
    OFF_CPU_PROFILE_TYPE,
    RAW,
    SAMPLES,
    STACKS,
)
from icestream.v1.common_pb2 import Mapping
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from standalone.supervisor.in_process_broker import PARTITIONS
from streams.flatten import flattener
from streams.flatten.flattener import _Flattener, flatten
from streams.flatten.record import Encode, as_json, record
from streams.flatten.sums import FlatKey, FlatSum
from streams.settings import FlattenSettings
from tests.conftest import delete_topics
from tests.data import messages as builders
from tests.icestream.test_tail import TRACE, learn, send, stack_batch
from tests.pipeline.reading import follow
from tests.waiting import PATIENCE_S, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "flat_top.py"
START_MS = 1_790_000_000_000


def sample_batch(offset: int, start_ms: int = START_MS) -> bytes:
    """Four samples of two stacks in two intervals; one stack is not announced. Streams' output of this offset."""
    return builders.sample_batch(
        builders.source(builders.batch_id(), offset=offset), start_ms,
        {
            "sample_offset_ms": [5, 10, 9_999, 10_000], "sample_pid": [10] * 4, "sample_tid": [11] * 4,
            "sample_stack_id": [2, 2, 0, 2], "sample_context": [1, 0, 0, 0], "sample_value": [5_000_000] * 4,
        },
        series=[builders.sample_series({"comm": "worker", "service": "shop"})],
        **builders.contexts([TRACE + bytes(8)]),
    )  # fmt: skip


@contextmanager
def running(
    settings: KafkaSettings, interval_ms: int = 10_000, encode: Encode = as_json, metrics_listen: str = ""
) -> Iterator[None]:
    """The command's work, in a thread."""
    stop, failed = threading.Event(), []
    own = FlattenSettings(kafka=settings.kafka, metrics_listen=metrics_listen)

    def work() -> None:
        try:
            flatten(own, interval_ms, stop, encode)
        except Exception as error:  # told below
            failed.append(error)

    thread = threading.Thread(target=work)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flattener, "_KAFKA_S", PATIENCE_S)  # where Kafka takes longer, the command ends
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE_S)
    assert not failed
    assert not thread.is_alive()


class Reader:
    """Everything on icestream.flat so far."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._consumer = follow(settings, FLAT)
        self._producer = producer(settings)
        self._ended = 0
        self.records: list[dict] = []

    def read(self) -> list[dict]:
        for message in self._consumer.consume(100, timeout=0.3):
            if message.value() == b"end":
                self._ended += 1
            elif message.error() is None:
                self.records.append(json.loads(message.value()))
        return self.records

    def read_to_end(self) -> None:
        """Reads all that came before now: what comes now is the last in each partition."""
        for partition in range(PARTITIONS):
            self._producer.produce(FLAT, b"end", partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0
        wait_until(lambda: self.read() and self._ended == PARTITIONS)

    def close(self) -> None:
        self._consumer.close()

    def total(self) -> int:
        return sum(record["value"] for record in self.read())


@pytest.fixture
def reader(broker: KafkaSettings) -> Iterator[Reader]:
    reader = Reader(broker)
    yield reader
    reader.close()


def test_records_have_everything_and_sums_are_those_of_the_samples(broker: KafkaSettings, reader: Reader) -> None:
    send(broker, (STACKS, stack_batch().SerializeToString()), (STACKS, b"\xff"), (SAMPLES, b"\xff"))
    send(broker, (SAMPLES, sample_batch(1)), (SAMPLES, sample_batch(1)), (SAMPLES, sample_batch(2)))
    with running(broker, 1_000):
        wait_until(lambda: reader.total() >= 40_000_000)
    with running(broker, 1_000):  # again: what is published is not published twice, also if it comes once more
        send(broker, (SAMPLES, sample_batch(2)), (SAMPLES, sample_batch(3)))
        wait_until(lambda: reader.total() >= 60_000_000)
    reader.read_to_end()
    assert reader.total() == 60_000_000
    first = next(record for record in reader.records if record["stack_id"] == f"{2:016x}")
    assert first | {"value": 0, "samples": 0, "start_unix_milli": 0} == {
        "start_unix_milli": 0, "interval_ms": 1_000, "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "unit": "nanoseconds", "host_id": "host-1", "service": "shop", "labels": {"comm": "worker", "service": "shop"},
        "stack_id": f"{2:016x}", "functions": ["main", "hot", "inlined"], "modules": ["/bin/shop"] * 3,
        "files": [""] * 3, "value": 0, "samples": 0,
        "operation": "",
    }  # fmt: skip
    sums: Counter[tuple[int, str]] = Counter()
    for each in reader.records:
        sums[each["start_unix_milli"] - START_MS, each["functions"][-1]] += each["samples"]
    assert sums == {(0, "inlined"): 6, (9_000, "[no stack]"): 3, (10_000, "inlined"): 3}


def test_samples_of_a_raw_topic_that_was_made_anew_count_though_its_offsets_begin_again(
    apache_kafka: KafkaSettings,
) -> None:
    admin, sender, reader = AdminClient(client_config(apache_kafka)), producer(apache_kafka), Reader(apache_kafka)
    cluster = str(admin.list_topics(timeout=PATIENCE_S).cluster_id)

    def publish(offset: int) -> None:
        """Streams publish an output of the batch at this offset."""
        message = SampleBatch.FromString(sample_batch(offset))
        message.source.cluster = cluster
        sender.produce(SAMPLES, message.SerializeToString(), partition=0)
        assert sender.flush(PATIENCE_S) == 0

    def fill_raw(messages: int) -> None:
        for _ in range(messages):
            sender.produce(RAW, b"raw", partition=0)
        assert sender.flush(PATIENCE_S) == 0

    fill_raw(10)
    with running(apache_kafka, 200):
        for offset in (5, 6, 7, 8, 9, 6):  # one comes again
            publish(offset)
        wait_until(lambda: reader.total() >= 5 * 20_000_000, reader.total)
        delete_topics(apache_kafka, [RAW])
        create(apache_kafka, partitions=PARTITIONS, replication=1)
        fill_raw(3)
        for offset in (0, 1, 2, 1):
            publish(offset)
        wait_until(lambda: reader.total() >= 8 * 20_000_000, reader.total)
        reader.read_to_end()
    assert reader.total() == 8 * 20_000_000
    reader.close()


def test_a_transaction_is_made_of_so_many_bytes_and_a_backlog_takes_several(
    broker: KafkaSettings, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, collect, made_of = len(sample_batch(1)), _Flattener._collect, []
    assert {len(sample_batch(offset)) for offset in range(1, 37)} == {size}

    def noting(worker: _Flattener, stop: threading.Event) -> list[Message]:
        messages = collect(worker, stop)
        made_of.extend([[len(message.value() or b"") for message in messages]] if messages else [])
        return messages

    monkeypatch.setattr(flattener, "_BYTES", 6 * size - 1)
    monkeypatch.setattr(_Flattener, "_collect", noting)
    send(broker, (STACKS, stack_batch().SerializeToString()))
    send(broker, *((SAMPLES, sample_batch(offset)) for offset in range(1, 37)))
    with running(broker, interval_ms=int(PATIENCE_S * 1000)):
        wait_until(lambda: reader.total() >= 36 * 20_000_000, reader.total)
    reader.read_to_end()
    assert reader.total() == 36 * 20_000_000
    assert sum(record["samples"] for record in reader.records) == 36 * 4
    assert made_of == [[size] * 6] * 6


def test_each_sample_is_in_one_record_while_members_join_and_leave(apache_kafka: KafkaSettings) -> None:
    send(apache_kafka, (STACKS, stack_batch().SerializeToString()))
    admin, sender, reader = AdminClient(client_config(apache_kafka)), producer(apache_kafka), Reader(apache_kafka)
    offsets = itertools.count(1)

    def members() -> int:
        """How many members of the group have partitions."""
        [group] = admin.describe_consumer_groups([FLATTEN_GROUP]).values()
        with contextlib.suppress(KafkaException):  # a Kafka that has just started looks for the group
            return sum(1 for member in group.result(60).members if member.assignment.topic_partitions)
        return 0

    def work_on() -> int:
        """Sends ten batches more, to all partitions; returns the sum of all so far."""
        for offset in itertools.islice(offsets, 10):
            sender.produce(SAMPLES, sample_batch(offset), partition=offset % PARTITIONS)
        assert sender.flush(PATIENCE_S) == 0
        return offset * 20_000_000

    with running(apache_kafka, 200):
        work_on()
        with running(apache_kafka, 200):
            wait_until(lambda: work_on() and members() == 2)
            work_on()
        expected = work_on()
        wait_until(lambda: reader.total() >= expected, reader.total)
    reader.read_to_end()
    assert reader.total() == expected
    reader.close()


def deep_stack() -> StackNames:
    """Names of the stack 4096: 4,096 frames, together more than a message may have."""
    rows = list(range(1, 4097))
    locations = [100, *[101] * 4094, 102]
    batch = builders.stack_batch(
        {
            "node_id": rows, "node_parent_id": [0, *rows[:-1]], "node_location_id": locations,
            "location_id": [100, 101, 102], "location_address": [1, 2, 3], "location_version": [1, 1, 1],
            "location_line_count": [1, 1, 1], "line_function": [1, 2, 3],
        },
        strings=["", "main", "\n" * 250, "hot"], mappings=[Mapping(), Mapping()],
    )  # fmt: skip
    names = StackNames()
    learn(names, StackBatch.FromString(batch))
    return names


def test_a_stack_too_large_for_a_message_loses_its_middle() -> None:
    key = FlatKey(0, "host-1", DEFAULT_PROFILE_TYPE, (("service", "shop"),), 4096, START_MS)
    data = record(key, FlatSum(5, 1), 10_000, deep_stack())
    frames = json.loads(data)["functions"]
    assert 200_000 < len(data) <= MAX_MESSAGE_BYTES
    assert (frames[0], frames[len(frames) // 2], frames[-1]) == ("main", "[cut]", "hot")


def test_names_that_come_a_moment_later_are_waited_for(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.flatten.flattener._NAMES_WAIT_S", PATIENCE_S)  # a slow machine's moment is longer
    reader = Reader(in_process_broker)
    with running(in_process_broker, 200):
        send(in_process_broker, (SAMPLES, sample_batch(1)))
        time.sleep(1)
        send(in_process_broker, (STACKS, stack_batch().SerializeToString()))
        wait_until(lambda: reader.total() >= 20_000_000)
    assert {record["functions"][-1] for record in reader.records} == {"inlined", "[no stack]"}
    reader.close()


def test_the_example_that_knows_nothing_of_icestream_prints_a_top(in_process_broker: KafkaSettings) -> None:
    source = EXAMPLE.read_text()
    assert not [line for line in source.splitlines() if line.startswith(("import icestream", "from icestream"))]
    send(in_process_broker, (STACKS, stack_batch().SerializeToString()))
    waits = SampleBatch.FromString(sample_batch(1))
    waits.profile_type = OFF_CPU_PROFILE_TYPE  # it counts CPU only
    waits.sample_value[:] = [10**9] * 4
    send(in_process_broker, (SAMPLES, waits.SerializeToString()))
    send(in_process_broker, (SAMPLES, sample_batch(2)), (SAMPLES, sample_batch(3)))
    command = [sys.executable, "-I", str(EXAMPLE), in_process_broker.kafka]
    wanted = {"     0.03 s  inlined\n", "     0.01 s  [no stack]\n"}
    with running(in_process_broker, 200), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        found: set[str] = set()
        while not wanted <= found and time.monotonic() < deadline:
            found.add(process.stdout.readline())
        process.terminate()
    assert wanted <= found
