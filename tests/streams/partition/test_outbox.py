import asyncio
import contextlib
import itertools
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS, STREAMS_GROUP, SYMBOL_REQUESTS
from icestream.v1.symbols_pb2 import SymbolRequest
from streams.partition import outbox as outbox_module
from streams.partition import recovery
from streams.partition.outbox import MANY, Outbox, Outboxes
from streams.partition.position import Position
from streams.partition.process import OutputMessages
from tests.changed_kafka import Changing, lose_tail
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S, wait_until

GROUP = "somebody"


def visible(settings: KafkaSettings, topic: str = SAMPLES, partition: int = 2) -> list[bytes]:
    """What a reader sees by now."""
    return [message.value() or b"" for message in messages(settings, topic) if message.partition() == partition]


def transactions(settings: KafkaSettings) -> list[list[bytes]]:
    """The messages of one partition, by transaction: Kafka ends each with a marker, which takes an offset, too."""
    found = [(message.offset() or 0, message.value() or b"") for message in messages(settings, SAMPLES)]
    by_transaction = itertools.groupby(enumerate(found), lambda numbered: numbered[1][0] - numbered[0])
    return [[value for _, (_, value) in group] for _, group in by_transaction]


def test_the_future_is_done_when_all_is_acknowledged_and_the_position_travels_along(broker: KafkaSettings) -> None:
    async def run() -> None:
        outbox = Outbox(broker, 2, {})
        outputs = OutputMessages(b"host", [b"stack"], [b"one", b"two"], position=Position(1, 2, 3, 4, 5, 6))
        await asyncio.wait_for(outbox.send(outputs), PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    reader = clients.consumer(broker, "test")
    reader.assign([TopicPartition(SAMPLES, 2, 0)])
    messages = [reader.poll(PATIENCE_S) for _ in range(2)]
    assert [m.value() for m in messages if m] == [b"one", b"two"]
    assert [m.headers() for m in messages if m] == [[("icestream.position", b"1 2 3 4 5 6")]] * 2
    reader.close()
    assert visible(broker, STACKS) == [b"stack"]


@pytest.mark.parametrize(
    "waiting", [[b"output"] * (MANY + 1), [bytes(300_000)] * 4], ids=["many outputs", "many bytes"]
)
def test_transactions_follow_each_other_at_once_where_much_waits(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, waiting: list[bytes]
) -> None:
    """Else a partition with a backlog would publish as many messages in SPACING_S as may be unacknowledged."""
    monkeypatch.setattr(outbox_module, "SPACING_S", 10 * PATIENCE_S)
    monkeypatch.setattr(outbox_module, "TRANSACTION_BYTES", 1_000_000)

    async def run() -> None:
        outbox = Outbox(in_process_broker, 2, {})
        for _ in range(3):
            sent = [outbox.send(OutputMessages(b"host", [], [value])) for value in waiting]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        outbox.send(OutputMessages(b"host", [], [b"alone"]))  # would wait
        outbox.close()
        await asyncio.to_thread(outbox.join, PATIENCE_S)
        assert not outbox.alive()

    asyncio.run(run())
    assert visible(in_process_broker) == 3 * waiting


def test_a_message_that_kafka_refuses_is_an_error_and_nothing_after_it_is_published(
    in_process_broker: KafkaSettings,
) -> None:
    async def run() -> None:
        outbox = Outbox(in_process_broker, 2, {})
        futures = [outbox.send(OutputMessages(b"k", [], [value])) for value in (bytes(2_000_000), b"later")]
        for future in [*futures, outbox.sent()]:
            with pytest.raises(RuntimeError, match="did not take"):
                await asyncio.wait_for(future, PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    assert visible(in_process_broker) == []


@pytest.mark.kafka
def test_nobody_sees_what_an_earlier_owner_publishes_after_a_takeover(apache_kafka: KafkaSettings) -> None:
    """As a frozen worker does that wakes up."""

    async def run() -> None:
        earlier = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(earlier.send(OutputMessages(b"host", [], [b"before"])), PATIENCE_S)
        later = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(later.opened, PATIENCE_S)
        late = earlier.send(OutputMessages(b"host", [b"late"], [b"late"]))
        with pytest.raises(RuntimeError, match="another worker has taken partition 2 over"):
            await asyncio.wait_for(late, PATIENCE_S)
        await asyncio.wait_for(later.send(OutputMessages(b"host", [], [b"after"])), PATIENCE_S)
        for outbox in (earlier, later):
            outbox.close()

    asyncio.run(run())
    assert visible(apache_kafka) == [b"before", b"after"]
    assert visible(apache_kafka, STACKS) == []


@pytest.mark.kafka
def test_a_takeover_aborts_the_transaction_that_a_killed_owner_left(apache_kafka: KafkaSettings) -> None:
    killed = clients.producer(apache_kafka, **{"transactional.id": f"{STREAMS_GROUP}.2"})
    killed.init_transactions(PATIENCE_S)
    killed.begin_transaction()
    killed.produce(SAMPLES, b"half", partition=2)
    assert killed.flush(PATIENCE_S) == 0

    async def run() -> None:
        outbox = Outbox(apache_kafka, 2, {})
        await asyncio.wait_for(outbox.opened, PATIENCE_S)
        assert recovery.read(apache_kafka, 2).plan == recovery.RecoveryPlan()
        await asyncio.wait_for(outbox.send(OutputMessages(b"host", [], [b"whole"])), PATIENCE_S)
        outbox.close()

    asyncio.run(run())
    assert visible(apache_kafka) == [b"whole"]


def test_with_the_in_process_broker_it_waits_until_the_readers_have_read(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streams.partition.outbox._COMPLAIN_S", 0.0)
    size = 400_000
    outputs = OutputMessages(b"host", [], [bytes(size)])

    async def run() -> None:
        outboxes = Outboxes(replace(in_process_broker, kafka_in_process=True), [GROUP])
        outbox = outboxes.open(0)
        for _ in range(7):  # 2.8 MB
            await asyncio.wait_for(outbox.send(outputs), PATIENCE_S)
        assert "waiting for readers" not in caplog.text
        sending = outbox.send(outputs)
        while f"waiting for readers of {SAMPLES}" not in caplog.text:
            await asyncio.sleep(0.01)
        assert not sending.done()
        assert outboxes.queued_bytes == size
        group = clients.consumer(in_process_broker, GROUP)
        group.commit(offsets=[TopicPartition(SAMPLES, 0, 5)], asynchronous=False)
        await asyncio.wait_for(sending, PATIENCE_S)
        assert outboxes.queued_bytes == 0
        outboxes.close(PATIENCE_S)

    asyncio.run(run())


@pytest.mark.kafka
def test_a_transaction_ends_with_the_message_that_fills_it(
    apache_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, go, take_over = 100_000, threading.Event(), Outbox._take_over
    values = [bytes([number]) * size for number, size in enumerate([30_000, 1_000, 69_000, 99_999, 250_000] * 12)]

    def later(outbox: Outbox, *arguments: Any) -> None:
        go.wait(PATIENCE_S)
        take_over(outbox, *arguments)

    monkeypatch.setattr(outbox_module, "TRANSACTION_BYTES", limit)
    monkeypatch.setattr(Outbox, "_take_over", later)  # so that all outputs wait before the first transaction

    async def run() -> None:
        outbox = Outbox(apache_kafka, 2, {})
        # Half of an output is for each topic.
        sent = [outbox.send(OutputMessages(b"host", [value], [value])) for value in values]
        assert outbox.queued_bytes == 2 * sum(map(len, values))
        go.set()
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        assert outbox.queued_bytes == 0
        outbox.close()

    asyncio.run(run())
    found = transactions(apache_kafka)
    assert [value for transaction in found for value in transaction] == values
    assert visible(apache_kafka, STACKS) == values
    for transaction in found:
        size = 2 * sum(map(len, transaction))
        assert size - 2 * len(transaction[-1]) < limit
        assert size >= limit or transaction is found[-1]


def test_a_backlog_that_the_in_process_broker_could_not_keep_is_published_while_it_is_read(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That broker drops the oldest messages of a partition beyond 5 MB, read or not."""
    monkeypatch.setattr(outbox_module, "_COMPLAIN_S", 0.0)
    kept, values = 3_000_000, [bytes([number]) * 400_000 for number in range(40)]

    async def run() -> list[bytes]:
        outboxes = Outboxes(replace(in_process_broker, kafka_in_process=True), [GROUP])
        outbox, backlog = outboxes.open(2), outboxes.backlogs[SAMPLES]
        for value in values:
            outbox.send(OutputMessages(b"host", [], [value]))
        while f"waiting for readers of {SAMPLES}" not in caplog.text:
            await asyncio.sleep(0.01)
        assert backlog.unread_bytes() > kept / 2
        reader, found = clients.consumer(in_process_broker, GROUP), []
        reader.assign([TopicPartition(SAMPLES, 2, 0)])
        with contextlib.closing(reader):
            while len(found) < len(values) and backlog.unread_bytes() <= kept:
                found.append(await asyncio.to_thread(read, reader))
        outboxes.close(PATIENCE_S)
        return found

    def read(reader: Consumer) -> bytes:
        message = reader.poll(PATIENCE_S)
        assert message is not None
        reader.commit(message, asynchronous=False)
        return message.value() or b""

    assert asyncio.run(run()) == values


def requested(settings: KafkaSettings) -> set[str]:
    return {
        SymbolRequest.FromString(message.value() or b"").build_id for message in messages(settings, SYMBOL_REQUESTS)
    }


def test_requests_and_late_names_are_published_however_many_there_have_been(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer has room for 100,000 messages whose delivery reports nobody has taken; here for few."""
    monkeypatch.setattr(clients, "producer", partial(clients.producer, **{"queue.buffering.max.messages": 5}))

    async def run() -> None:
        outboxes = Outboxes(in_process_broker)
        names = asyncio.create_task(outboxes.announce("gnu:aa", [bytes([number]) for number in range(20)]))
        wanted = {f"gnu:{number:02x}" for number in range(20)}
        deadline = time.monotonic() + PATIENCE_S
        while missing := wanted - await asyncio.to_thread(requested, in_process_broker):
            assert time.monotonic() < deadline, missing
            outboxes.ask([SymbolRequest(build_id=build_id) for build_id in sorted(missing)])
            await asyncio.sleep(0.05)
        while not names.done():
            outboxes.ask([])
            await asyncio.sleep(0.05)
        await names

    asyncio.run(run())
    wait_until(lambda: len(list(messages(in_process_broker, STACKS))) == 20)


def test_late_names_wait_for_the_readers_of_the_in_process_broker(in_process_broker: KafkaSettings) -> None:
    async def run() -> None:
        outboxes = Outboxes(replace(in_process_broker, kafka_in_process=True), [GROUP])
        names = asyncio.create_task(outboxes.announce("gnu:aa", [bytes(400_000)] * 8))  # 3 MB have room
        while outboxes.backlogs[STACKS].unread_bytes() < 2_800_000:
            outboxes.ask([])
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert not names.done()
        group = clients.consumer(in_process_broker, GROUP)
        group.commit(offsets=[TopicPartition(STACKS, number, 7) for number in range(4)], asynchronous=False)
        await asyncio.wait_for(names, PATIENCE_S)

    asyncio.run(run())


def test_a_producer_that_cannot_be_made_is_the_reason_why_a_partition_cannot_begin() -> None:
    async def run() -> None:
        outbox = Outbox(KafkaSettings(kafka_security_protocol="nonsense"), 2, {})
        with pytest.raises(RuntimeError, match="nonsense"):
            await asyncio.wait_for(outbox.opened, PATIENCE_S)
        outbox.close()

    asyncio.run(run())


@pytest.mark.kafka
def test_symbols_are_asked_for_after_kafka_has_lost_the_end_of_their_log(changing_kafka: Changing) -> None:
    settings = changing_kafka.settings()

    async def run() -> None:
        outboxes = Outboxes(settings)

        async def ask_for(number: int) -> None:
            asked = SymbolRequest(build_id="gnu:aa", attempt=number)
            outboxes.ask([asked])
            deadline = time.monotonic() + PATIENCE_S
            while asked.SerializeToString() not in [m.value() for m in messages(settings, SYMBOL_REQUESTS)]:
                assert time.monotonic() < deadline, number
                outboxes.ask([])
                await asyncio.sleep(0.1)

        for number in range(1, 4):
            await ask_for(number)
        with changing_kafka.stopped() as data:
            for partition in range(4):
                lose_tail(data, SYMBOL_REQUESTS, partition, 1)
        for number in range(4, 8):
            await ask_for(number)

    asyncio.run(run())
