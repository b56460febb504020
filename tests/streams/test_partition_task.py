"""A partition task, with a real broker to send to."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from icestream import kafka
from icestream.dead_letters import Rate
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from streams import logs, metrics, partition_task
from streams.feed import Event
from streams.logs import Logs
from streams.outbox import Outbox
from streams.partition_task import PartitionTask
from streams.process import Operators, Outputs, Processor
from streams.recovery import Recovery
from tests.data.handwritten import START, Interval, Raw, Sample, activity
from tests.data.messages import context
from tests.data.windows import Window, window
from tests.streams.outputs import rows
from tests.waiting import PATIENCE_S


class Bench:
    """A task, what it acknowledged, and what it sent. `wait_s` is long: no test may need it."""

    def __init__(
        self,
        settings: KafkaSettings,
        operators: Operators | None = None,
        wait_s: float = 3600,
        rate: Rate | None = None,
    ) -> None:
        self.acknowledged: list[tuple[str, int]] = []
        self.failed: list[BaseException] = []
        self.sent: list[bytes] = []
        self.letters: list[tuple[int, str]] = []
        self.sought: list[tuple[str, int]] = []
        self.outbox = Outbox(settings, 0, {})
        self._send, self._dead_letter = self.outbox.send, self.outbox.dead_letter
        self.outbox.send = self.send  # type: ignore[method-assign]
        self.outbox.dead_letter = self.dead_letter  # type: ignore[method-assign]
        self.producer: Producer = kafka.producer(settings)
        self.logs = Logs(settings)
        processor = Processor(operators)
        self.task = PartitionTask(
            0,
            "cluster",
            processor,
            self.outbox,
            self.logs,
            wait_s,
            self.failed.append,
            self.room,
            lambda topic: None,
            self.seek,
            rate,
        )
        self.task.start(contextlib.nullcontext(Recovery()))

    async def room(self) -> None:
        """There is always room."""

    async def seek(self, topic: str, offset: int) -> None:
        self.sought.append((topic, offset))

    def send(self, outputs: Outputs) -> "asyncio.Future[None]":
        self.sent += outputs.samples
        return self._send(outputs)

    def dead_letter(
        self, topic: str, offset: int, key: bytes | None, value: bytes, stage: str, error: Exception
    ) -> "asyncio.Future[None]":
        self.letters.append((offset, stage))
        return self._dead_letter(topic, offset, key, value, stage, error)

    async def close(self) -> None:
        await self.task.close()
        self.logs.close()
        self.outbox.join(PATIENCE_S)

    def log(self, topic: str, values: list[bytes]) -> None:
        """Makes messages exist in Kafka, without handing them to the task."""
        for value in values:
            self.producer.produce(topic, value, partition=0)
        assert self.producer.flush(PATIENCE_S) == 0

    def put(self, topic: str, offset: int, value: bytes) -> None:
        self.task.put(topic, Event(0, offset, b"host", value, lambda: self.acknowledged.append((topic, offset))))

    async def until(self, count: int) -> None:
        """Until so many messages are acknowledged."""
        await self.until_true(lambda: len(self.acknowledged) >= count)

    async def until_true(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and not self.failed:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


def traced(samples: list[bytes]) -> dict[str, int]:
    """The values of each trace that samples hold."""
    by_trace: Counter[str] = Counter()
    for row, value in rows(samples).items():
        by_trace[row[-1][:16].hex()] += value
    return {trace: value for trace, value in by_trace.items() if trace}


def expected(made: list[Window]) -> dict[str, int]:
    """The values of each trace in windows."""
    return {trace: value for one in made for trace, value in one.by_trace.items() if value}


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_messages_are_acknowledged_in_order_good_and_bad(in_process_broker: KafkaSettings) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        for offset in range(10):
            good = Raw([Sample(1)], sequence=offset + 1).bytes()
            bench.put(RAW, offset, b"\xff" if offset % 3 == 0 else good)
        await bench.until(10)
        assert bench.acknowledged == [(RAW, offset) for offset in range(10)]
        assert bench.letters == [(offset, "decode") for offset in (0, 3, 6, 9)]
        assert len(bench.sent) == 6
        await bench.close()

    run(scenario)


def test_raw_waits_for_promised_activity_that_kafka_has_and_activity_does_not_wait(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        promised = activity([Interval(1, 0, 100, context(1))])
        bench.log(ACTIVITY, [promised])
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=1).bytes())
        await asyncio.sleep(0.2)
        assert bench.sent == []
        bench.put(ACTIVITY, 0, promised)
        await bench.until(2)
        assert {row[-1] for row in rows(bench.sent)} == {context(1)}
        assert len(bench.sent) == 1
        await bench.close()

    run(scenario)


def test_while_raw_waits_what_is_done_of_activity_is_work_for_it(in_process_broker: KafkaSettings) -> None:
    """As the watchdog sees it: raw that waits for a long backlog of activity does not stand still."""

    async def scenario() -> None:
        bench = Bench(in_process_broker)
        promised = [activity([Interval(1, 0, 100, context(1))], sequence=number) for number in (1, 2, 3)]
        bench.log(ACTIVITY, promised)
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=3).bytes())
        await bench.until_true(lambda: bench.task._feeds[RAW].waits)
        works = [bench.task.work(RAW)]
        for number in (0, 1):
            bench.put(ACTIVITY, number, promised[number])
            await bench.until(number + 1)
            works.append(bench.task.work(RAW))
        assert works[0] < works[1] < works[2]
        assert bench.task.work(ACTIVITY) == 0
        assert bench.sent == []
        await bench.close()

    run(scenario)


def test_activity_that_kafka_does_not_have_holds_up_nobody_and_is_a_correction_later(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        for host in range(20):
            bench.put(RAW, host, Raw([Sample(5)], host=f"h{host}", activity_sequence=3).bytes())
        await bench.until(20)
        assert not traced(bench.sent)
        late = activity([Interval(1, 0, 100, context(1))], sequence=3, host="h7")
        bench.log(ACTIVITY, [late])
        bench.put(ACTIVITY, 0, late)
        await bench.until(21)
        assert rows(bench.sent).total() == 200
        assert sum(value for row, value in rows(bench.sent).items() if row[-1] == context(1)) == 10
        await bench.close()

    run(scenario)


def test_raw_does_not_wait_forever_for_activity_that_kafka_does_not_deliver_and_says_so_once(
    in_process_broker: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, wait_s=0.2)
        bench.log(ACTIVITY, [activity([])])  # never handed over
        for offset in range(3):
            bench.put(RAW, offset, Raw([Sample(5)], sequence=offset + 1, activity_sequence=offset + 1).bytes())
        await bench.until(3)
        assert rows(bench.sent).total() == 30
        await bench.close()

    run(scenario)
    told = [record.message for record in caplog.records if record.name == partition_task.__name__]
    assert told == ["partition 0: raw batches go ahead of activity that Kafka does not deliver"]


@pytest.mark.parametrize("first", [RAW, ACTIVITY])
def test_a_backlog_loses_no_trace_whichever_side_is_read_first(in_process_broker: KafkaSettings, first: str) -> None:
    """60 windows of 8 hosts: five minutes, of which Kafka delivers one side before the other."""

    async def scenario() -> None:
        made = [window(START, sequence, host, samples=40) for sequence in range(1, 61) for host in range(8)]
        messages = {RAW: [one.raw for one in made], ACTIVITY: [one.activity for one in made]}
        bench = Bench(in_process_broker)
        for topic, values in messages.items():
            bench.log(topic, values)
        for topic in sorted(messages, key=lambda topic: topic != first):
            for offset, value in enumerate(messages[topic]):
                bench.put(topic, offset, value)
            await asyncio.sleep(0.1)
        await bench.until(2 * len(made))
        assert traced(bench.sent) == expected(made)
        assert len(bench.sent) == len(made)  # no corrections
        await bench.close()

    run(scenario)


def test_a_backlog_loses_no_trace_if_kafka_does_not_deliver_activity_for_longer_than_raw_waits(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        made = [window(START, sequence, host, samples=40) for sequence in range(1, 61) for host in range(8)]
        bench = Bench(in_process_broker, wait_s=0.01)
        bench.log(ACTIVITY, [one.activity for one in made])
        for offset, one in enumerate(made):
            bench.put(RAW, offset, one.raw)
        await bench.until(len(made))
        assert traced(bench.sent) == {}
        for offset, one in enumerate(made):
            bench.put(ACTIVITY, offset, one.activity)
        await bench.until(2 * len(made))
        assert traced(bench.sent) == expected(made)
        await bench.close()

    run(scenario)


def test_a_flood_of_dead_letters_is_acknowledged_and_mostly_counted_and_holds_up_no_good_message(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, rate=Rate(0))
        for offset in range(1000):
            bench.put(RAW, offset, b"\xff")
        bench.put(RAW, 1000, Raw([Sample(5)]).bytes())
        bench.put(ACTIVITY, 0, activity([]))
        await bench.until(1002)
        assert [offset for topic, offset in bench.acknowledged if topic == RAW] == list(range(1001))
        assert bench.letters == []
        assert rows(bench.sent).total() == 10
        await bench.close()

    run(scenario)


def test_a_mistake_in_an_operator_makes_a_dead_letter_and_stops_nothing(in_process_broker: KafkaSettings) -> None:
    def change(raw: object) -> object:
        if raw.id.sequence == 2:  # type: ignore[attr-defined]
            raise IndexError("a mistake")
        return raw

    async def scenario() -> None:
        bench = Bench(in_process_broker, Operators(change=change))  # type: ignore[arg-type]
        for offset in range(3):
            bench.put(RAW, offset, Raw([Sample(1)], sequence=offset + 1).bytes())
        await bench.until(3)
        assert bench.letters == [(1, "process")]
        assert len(bench.sent) == 2
        await bench.close()

    run(scenario)


def read_again() -> float:
    return sum(metrics.READ_AGAIN.labels(topic)._value.get() for topic in (RAW, ACTIVITY))


def test_messages_that_faust_skips_are_read_from_kafka_and_processed_in_order(in_process_broker: KafkaSettings) -> None:
    """Of both topics, at the start and later."""

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
        sender = kafka.producer(apache_kafka, **{"transactional.id": "a sender of activity"})
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
        sender = kafka.producer(apache_kafka, **{"transactional.id": "a sender"})
        sender.init_transactions(PATIENCE_S)
        for value in values:
            sender.begin_transaction()
            sender.produce(RAW, value, partition=0)
            sender.commit_transaction(PATIENCE_S)
        admin = AdminClient(kafka.client_config(apache_kafka))
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


@pytest.mark.parametrize("topics_known", [False, True])
def test_nothing_is_acknowledged_after_something_was_not_taken(
    in_process_broker: KafkaSettings, topics_known: bool
) -> None:
    """The producer says so later, by a report, or at once where it knows the topics already."""

    async def scenario() -> None:
        bench = Bench(in_process_broker)
        if topics_known:
            bench.put(RAW, 0, Raw([Sample(1)]).bytes())
            await bench.until(1)
        before = list(bench.acknowledged)
        bench.outbox._partition = 99  # which Kafka does not have
        bench.put(RAW, 1, Raw([Sample(1)], sequence=2).bytes())
        bench.put(RAW, 2, Raw([Sample(1)], sequence=3).bytes())
        await bench.until(len(before) + 1)
        assert bench.acknowledged == before
        assert "did not take" in str(bench.failed[0])
        await bench.close()

    run(scenario)
