import asyncio
import ssl
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import faust
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata  # type: ignore[import-untyped]
from faust.assignor.partition_assignor import PartitionAssignor

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES
from icestream.v1.samples_pb2 import SampleBatch
from streams import app as worker_app
from streams.app import PartitionTasks, create, credentials
from streams.logs.logs import Logs
from streams.partition import partition_task
from streams.partition.feed import Event
from streams.partition.outbox import Outboxes
from streams.partition.process import Processor
from tests.data.handwritten import Raw, Sample
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S


def test_plain_text_needs_no_credentials() -> None:
    assert credentials(KafkaSettings()) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_is_rendered_for_faust(mechanism: str) -> None:
    settings = KafkaSettings(
        kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism=mechanism, kafka_sasl_username="u",
        kafka_sasl_password="p",
    )  # fmt: skip
    rendered = credentials(settings)
    assert isinstance(rendered, faust.SASLCredentials)
    assert (rendered.username, rendered.password, rendered.mechanism.value) == ("u", "p", mechanism)
    assert rendered.protocol.value == "SASL_PLAINTEXT"


def test_tls_is_rendered_for_faust_with_the_clients_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    settings = KafkaSettings(
        kafka_security_protocol="SSL", kafka_ssl_ca=str(certificate), kafka_ssl_certificate=str(certificate),
        kafka_ssl_key=str(key),
    )  # fmt: skip
    rendered = credentials(settings)
    assert isinstance(rendered, faust.SSLCredentials)
    assert isinstance(rendered.context, ssl.SSLContext)
    assert len(rendered.context.get_ca_certs()) == 1
    both = credentials(KafkaSettings(kafka_security_protocol="SASL_SSL", kafka_ssl_ca=str(certificate)))
    assert both.protocol.value == "SASL_SSL"


def test_each_worker_gets_partitions_and_few_of_them_move(tmp_path: Path) -> None:
    """As Kafka's group protocol has it: the assignor of one worker decides for all, from what each of them had."""
    partitions = set(range(4))
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: partitions)
    assignors: dict[str, PartitionAssignor] = {}

    def rebalance() -> dict[str, set[int]]:
        members = {}
        for name, assignor in assignors.items():
            metadata = assignor.metadata({RAW, ACTIVITY})
            members[name] = ConsumerProtocolMemberMetadata(0, [RAW, ACTIVITY], metadata.user_data)
        assigned = next(iter(assignors.values())).assign(cluster, members)
        for name, assignor in assignors.items():
            assignor.on_assignment(assigned[name])
        found = {name: dict(one.assignment) for name, one in assigned.items()}
        assert all(set(one[RAW]) == set(one[ACTIVITY]) for one in found.values())
        assert sorted(n for one in found.values() for n in one[RAW]) == sorted(partitions)
        return {name: set(one[RAW]) for name, one in found.items()}

    for name in ("a", "b", "c", "d", "e"):
        app = create(KafkaSettings(), cast(PartitionTasks, SimpleNamespace()), tmp_path)
        app.conf.canonical_url = f"http://{name}"
        assignors[name] = cast(PartitionAssignor, app.assignor)
        shares = sorted(len(share) for share in rebalance().values())
        assert shares[-1] - shares[0] <= 1
    before = rebalance()
    assert before == rebalance()
    del assignors["e"], assignors["a"]
    after = rebalance()
    moved = sum(len(after[name] - before[name]) for name in after)
    assert moved == len(partitions) - sum(len(before[name]) for name in after)
    assert sorted(map(len, after.values())) == [1, 1, 2]


def test_a_task_goes_on_if_it_keeps_its_partition_and_publishes_nothing_twice(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rebalance, Kafka sends messages again that were processed but not committed."""
    monkeypatch.setattr(partition_task, "PAUSE_S", PATIENCE_S)  # a task whose outputs take longer does not go on

    async def run() -> None:
        failed: list[BaseException] = []
        acknowledged: list[tuple[str, int]] = []
        processor, outboxes, logs = Processor(), Outboxes(in_process_broker), Logs(in_process_broker)
        tasks = PartitionTasks(in_process_broker, processor, outboxes, logs, "cluster", 0.5, failed.append)

        def put(partition: int, offset: int, generation: str) -> None:
            value = Raw([Sample(1)], sequence=offset + 1).bytes()
            event = Event(partition, offset, b"host", value, lambda: acknowledged.append((generation, offset)))
            tasks.put(RAW, event)

        def again() -> list[int]:
            return [offset for generation, offset in acknowledged if generation == "second"]

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                assert not failed
                await asyncio.sleep(0.01)

        fetched: dict[tuple[str, int], bool] = {}
        tasks.fetch = lambda topic, partition, on: fetched.__setitem__((topic, partition), on)
        producer = clients.producer(in_process_broker)
        for offset in range(3):  # Kafka has what Faust delivers
            producer.produce(RAW, Raw([Sample(1)], sequence=offset + 1).bytes(), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        await tasks.assign({0, 1})
        put(0, 0, "first")
        put(1, 0, "first")
        await asyncio.wait_for(until(lambda: len(acknowledged) == 2), PATIENCE_S)
        kept, lost = processor.partition(0), processor.partition(1)
        put(0, 1, "first")  # it is queued when the rebalance begins
        await tasks.revoke()
        put(0, 2, "late")  # fetched before the rebalance
        fetched[RAW, 0] = False  # much is queued, and dropped by the rebalance
        await tasks.assign({0})
        assert fetched[RAW, 0]
        for offset in range(3):
            put(0, offset, "second")
        put(1, 1, "late")
        await asyncio.wait_for(until(lambda: len(again()) == 3), PATIENCE_S)
        assert processor.partition(0) is kept
        assert processor.partition(1) is not lost
        assert again() == [0, 1, 2]
        await tasks.close()
        logs.close()
        outboxes.close(PATIENCE_S)

    asyncio.run(run())
    assert published(in_process_broker) == [(RAW, 0, 0), (RAW, 0, 1), (RAW, 0, 2), (RAW, 1, 0)]


def test_no_more_messages_are_fetched_than_there_is_memory_for_however_small_they_are(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_app, "QUEUED_BYTES", 2_000_000)

    async def run() -> None:
        outboxes, logs = Outboxes(in_process_broker), Logs(in_process_broker)
        tasks = PartitionTasks(in_process_broker, Processor(), outboxes, logs, "cluster", 0.5, lambda error: None)
        fetched = [True]
        tasks.fetch = lambda topic, partition, on: fetched.append(on)
        await tasks.assign({0})
        for offset in range(2000):  # nothing is processed meanwhile
            tasks.put(RAW, Event(0, offset, b"host", b"", lambda: None))
        assert not fetched[-1]
        await asyncio.sleep(0)  # the task begins
        await tasks.close()
        logs.close()
        outboxes.close(PATIENCE_S)

    asyncio.run(run())


def test_each_partition_tells_what_it_has_recovered_and_others_while_they_wait(
    in_process_broker: KafkaSettings,
) -> None:
    """As the watchdog sees it: a partition that waits for the recovery of others does not stand still."""

    async def run() -> None:
        failed: list[BaseException] = []
        for offsets in (range(3), range(3, 4)):
            processor, outboxes, logs = Processor(), Outboxes(in_process_broker), Logs(in_process_broker)
            tasks = PartitionTasks(in_process_broker, processor, outboxes, logs, cluster, 0.5, failed.append)
            acknowledged: list[int] = []
            await tasks.assign({0, 1})
            acknowledge = partial(acknowledged.append, 1)
            for offset in offsets:
                tasks.put(RAW, Event(0, offset, b"host", values[offset], acknowledge))
            while len(acknowledged) < len(offsets):
                assert not failed
                await asyncio.sleep(0.01)
            own = tasks.own()
            await tasks.close()
            logs.close()
            outboxes.close(PATIENCE_S)
        assert own == {(RAW, 0): 3, (ACTIVITY, 0): 3, (RAW, 1): 3 + 3, (ACTIVITY, 1): 3 + 3}

    values = [Raw([Sample(1)], sequence=offset + 1).bytes() for offset in range(4)]
    sender = clients.producer(in_process_broker)
    for value in values[:3]:
        sender.produce(RAW, value, key=b"host", partition=0)
    assert sender.flush(PATIENCE_S) == 0
    cluster = str(sender.list_topics(timeout=PATIENCE_S).cluster_id)
    asyncio.run(run())


def test_a_partition_whose_outputs_kafka_does_not_take_does_not_stand_still(in_process_broker: KafkaSettings) -> None:
    """As the watchdog sees it. The outbox gives up after a time of its own."""

    async def run() -> None:
        outboxes, logs, failed = Outboxes(in_process_broker), Logs(in_process_broker), list[BaseException]()
        tasks = PartitionTasks(in_process_broker, Processor(), outboxes, logs, "C", 0.5, failed.append)
        acknowledged: list[int] = []
        await tasks.assign({0})
        value = Raw([Sample(1)]).bytes()
        tasks.put(RAW, Event(0, 0, b"host", value, partial(acknowledged.append, 1)))
        while not acknowledged:
            assert not failed
            await asyncio.sleep(0.01)
        before = tasks.own()
        assert None not in before.values()
        assert tasks.own() == before
        outbox = tasks._tasks[0]._outbox
        outbox.queued_bytes += 1
        assert tasks.own() == dict.fromkeys(before, None)
        outbox.queued_bytes -= 1
        assert tasks.own() == before
        await tasks.close()
        logs.close()
        outboxes.close(PATIENCE_S)

    asyncio.run(run())


def test_what_faust_drops_at_the_end_of_a_log_is_processed_once_and_committed(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also in a partition of which it drops everything, and no later message comes."""
    monkeypatch.setattr(partition_task, "_IDLE_S", 0.3)
    producer = clients.producer(in_process_broker)
    for partition in (0, 1):
        for sequence in range(1, 6):
            producer.produce(RAW, Raw([Sample(1)], sequence=sequence).bytes(), b"host", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    dropped = {(0, 3), (0, 4), *((1, offset) for offset in range(5))}

    async def run() -> None:
        failed: list[BaseException] = []
        processor, outboxes, logs = Processor(), Outboxes(in_process_broker), Logs(in_process_broker)
        tasks = PartitionTasks(in_process_broker, processor, outboxes, logs, "cluster", 0.5, failed.append)
        put = tasks.put

        def drop(topic: str, event: Event) -> None:
            if (event.partition, event.offset) in dropped:
                dropped.remove((event.partition, event.offset))
            else:
                put(topic, event)

        monkeypatch.setattr(tasks, "put", drop)
        app = create(in_process_broker, tasks, tmp_path)
        started = asyncio.create_task(app.start())
        async with asyncio.timeout(PATIENCE_S):
            while dropped or [(await logs.lag(RAW, n)).committed for n in (0, 1)] != [5, 5]:
                assert not failed
                await asyncio.sleep(0.1)
        await app.stop()
        started.cancel()
        await tasks.close()
        logs.close()
        outboxes.close(PATIENCE_S)

    asyncio.run(run())
    assert published(in_process_broker) == [(RAW, partition, offset) for partition in (0, 1) for offset in range(5)]


def published(settings: KafkaSettings) -> list[tuple[str, int, int]]:
    """The sources of all samples: topic, partition, offset."""
    sources = [SampleBatch.FromString(message.value() or b"").source for message in messages(settings, SAMPLES)]
    return sorted((source.topic, source.partition, source.offset) for source in sources)
