"""A partition task with a real broker to send to, and what it did."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine

from confluent_kafka import Producer

from icestream.kafka import clients
from icestream.kafka.dead_letters import Rate
from icestream.settings import KafkaSettings
from streams.logs.logs import Logs
from streams.partition.feed import Event
from streams.partition.outbox import Outbox
from streams.partition.partition_task import PartitionTask
from streams.partition.process import Operators, OutputMessages, Processor
from streams.partition.recovery import Recovery
from tests.data.windows import Window
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
        recovery: Recovery | None = None,
    ) -> None:
        self.breaks = 0  # of connections
        self.acknowledged: list[tuple[str, int]] = []
        self.failed: list[BaseException] = []
        self.sent: list[bytes] = []
        self.letters: list[tuple[int, str]] = []
        self.sought: list[tuple[str, int]] = []
        self.outbox = Outbox(settings, 0, {})
        self._send, self._dead_letter = self.outbox.send, self.outbox.dead_letter
        self.outbox.send = self.send  # type: ignore[method-assign]
        self.outbox.dead_letter = self.dead_letter  # type: ignore[method-assign]
        self.producer: Producer = clients.producer(settings)
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
            lambda: self.breaks,
        )
        self.task.start(contextlib.nullcontext(recovery or Recovery()))

    async def room(self) -> None:
        """There is always room."""

    async def seek(self, topic: str, offset: int) -> None:
        self.sought.append((topic, offset))

    def send(self, outputs: OutputMessages) -> "asyncio.Future[None]":
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


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(scenario())
