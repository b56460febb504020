"""A partition task, with a real broker to send to."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from streams.outbox import Outbox
from streams.partition_task import Event, PartitionTask
from streams.process import Operators, Outputs, Processor
from streams.recovery import Recovery
from tests.data.handwritten import Interval, Raw, Sample, activity
from tests.data.messages import context
from tests.streams.outputs import rows


class Bench:
    """A task, what it acknowledged, and what it sent."""

    def __init__(self, settings: KafkaSettings, operators: Operators | None = None, wait_s: float = 0.5) -> None:
        self.acknowledged: list[tuple[str, int]] = []
        self.failed: list[BaseException] = []
        self.sent: list[bytes] = []
        self.letters: list[tuple[int, str]] = []
        self.outbox = Outbox(settings, 0, {})
        self._send, self._dead_letter = self.outbox.send, self.outbox.dead_letter
        self.outbox.send = self.send  # type: ignore[method-assign]
        self.outbox.dead_letter = self.dead_letter  # type: ignore[method-assign]
        self.task = PartitionTask(0, "cluster", Processor(operators), self.outbox, wait_s, self.failed.append)
        recovery: asyncio.Future[Recovery] = asyncio.get_running_loop().create_future()
        recovery.set_result(Recovery())
        self.task.start(recovery)

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
        self.outbox.join(60)

    def put(self, topic: str, offset: int, value: bytes) -> None:
        self.task.put(topic, Event(0, offset, b"host", value, lambda: self.acknowledged.append((topic, offset))))

    async def until(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while len(self.acknowledged) < count and not self.failed:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


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


def test_raw_waits_for_promised_activity_and_activity_does_not_wait(in_process_broker: KafkaSettings) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, wait_s=5)
        found = [Interval(1, 0, 100, context(1))]
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=1).bytes())
        await asyncio.sleep(0.2)
        assert bench.sent == []
        bench.put(ACTIVITY, 0, activity(found))
        await bench.until(2)
        assert {row[-1] for row in rows(bench.sent)} == {context(1)}
        assert len(bench.sent) == 1
        await bench.close()

    run(scenario)


def test_the_wait_ends_and_what_comes_later_is_a_correction(in_process_broker: KafkaSettings) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, wait_s=2.0)
        started = time.monotonic()
        for offset in range(5):  # one collector is waited for once
            bench.put(RAW, offset, Raw([Sample(5)], sequence=offset + 1, activity_sequence=offset + 1).bytes())
        await bench.until(5)
        assert 2.0 <= time.monotonic() - started < 8  # five waits would take 10
        bench.put(ACTIVITY, 0, activity([Interval(1, 0, 100, context(1))]))
        await bench.until(6)
        assert rows(bench.sent).total() == 50
        assert {row[-1] for row in rows(bench.sent)} == {context(1)}
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
