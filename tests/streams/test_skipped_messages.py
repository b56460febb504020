"""A partition task, and messages that Kafka has but Faust does not deliver."""

import asyncio

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.logs import logs
from streams.partition import partition_task
from tests.data.handwritten import START, Raw, Sample, activity
from tests.data.windows import window
from tests.streams.bench import Bench, expected, run, traced
from tests.streams.outputs import rows
from tests.waiting import PATIENCE_S


def read_again() -> float:
    return sum(metrics.READ_AGAIN.labels(topic)._value.get() for topic in (RAW, ACTIVITY))


def test_messages_that_faust_skips_are_read_from_kafka_and_processed_in_order(in_process_broker: KafkaSettings) -> None:
    """Messages of both topics, at the start and later."""

    async def scenario() -> None:
        made = [window(START, sequence, samples=40) for sequence in range(1, 41)]
        bench, before = Bench(in_process_broker), read_again()
        bench.log(RAW, [one.raw for one in made])
        bench.log(ACTIVITY, [one.activity for one in made])
        delivered = [*range(10, 15), *range(25, 40)]
        for offset in delivered:
            bench.put(RAW, offset, made[offset].raw)
            bench.put(ACTIVITY, offset, made[offset].activity)
        await bench.until(2 * len(delivered))
        for topic in (RAW, ACTIVITY):
            assert [offset for each, offset in bench.acknowledged if each == topic] == delivered
        assert rows(bench.sent).total() == sum(one.value for one in made)
        assert traced(bench.sent) == expected(made)
        assert len(bench.sent) == len(made)  # no corrections
        assert read_again() == before + 40
        await bench.close()

    run(scenario)


def test_messages_that_faust_skips_at_the_end_of_a_log_are_read_and_fetched_again_when_no_others_come(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_task, "_IDLE_S", 0.1)
    monkeypatch.setattr(logs, "_PORTION_BYTES", 1)

    async def scenario() -> None:
        made = [window(START, sequence, samples=40) for sequence in range(1, 6)]
        raw = [*(one.raw for one in made), b"\xff"]
        bench, before = Bench(in_process_broker), read_again()
        bench.log(RAW, raw)
        bench.log(ACTIVITY, [one.activity for one in made])
        bench.put(RAW, 0, made[0].raw)
        async with asyncio.timeout(PATIENCE_S):
            while read_again() < before + 10 or {(RAW, 0), (ACTIVITY, 0)} - set(bench.sought):
                await asyncio.sleep(0.01)
        assert traced(bench.sent) == expected(made)
        assert rows(bench.sent).total() == sum(one.value for one in made)
        for offset, value in enumerate(raw):
            bench.put(RAW, offset, value)
        await bench.until(1 + len(raw))
        assert bench.acknowledged == [(RAW, offset) for offset in (0, *range(len(raw)))]
        assert rows(bench.sent).total() == sum(one.value for one in made)
        assert bench.letters == [(5, "decode")]
        await bench.close()

    run(scenario)


def test_raw_waits_no_longer_when_the_log_of_activity_ends_without_a_message(
    apache_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the end of a transaction."""
    monkeypatch.setattr(partition_task, "_IDLE_S", 0.5)

    async def scenario() -> None:
        bench = Bench(apache_kafka)
        sender = clients.producer(apache_kafka, **{"transactional.id": "a sender of activity"})
        sender.init_transactions(PATIENCE_S)
        sender.begin_transaction()
        sender.produce(ACTIVITY, activity([]), partition=0)
        sender.commit_transaction(PATIENCE_S)
        bench.put(ACTIVITY, 0, activity([]))
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=9).bytes())
        async with asyncio.timeout(PATIENCE_S):
            await bench.until(2)
        await bench.close()

    run(scenario)


def test_offsets_that_have_no_message_hold_up_nothing(apache_kafka: KafkaSettings) -> None:
    """Ends of transactions, and messages that Kafka has deleted."""

    async def scenario() -> None:
        bench, before = Bench(apache_kafka), read_again()
        values = [Raw([Sample(1)], sequence=sequence).bytes() for sequence in range(1, 5)]
        sender = clients.producer(apache_kafka, **{"transactional.id": "a sender"})
        sender.init_transactions(PATIENCE_S)
        for value in values:
            sender.begin_transaction()
            sender.produce(RAW, value, partition=0)
            sender.commit_transaction(PATIENCE_S)
        admin = AdminClient(clients.client_config(apache_kafka))
        [deletion] = admin.delete_records([TopicPartition(RAW, 0, 4)]).values()
        assert deletion.result(PATIENCE_S).low_watermark == 4
        for offset in (4, 6):
            bench.put(RAW, offset, values[offset // 2])
        await bench.until(2)
        assert bench.acknowledged == [(RAW, 4), (RAW, 6)]
        assert len(bench.sent) == 2
        assert read_again() == before
        await bench.close()

    run(scenario)
