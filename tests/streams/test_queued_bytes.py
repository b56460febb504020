"""While Kafka takes nothing, a worker holds so many bytes and no more; later it publishes everything."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from icestream.topics import RAW, SAMPLES, TOPICS
from icestream.v1.samples_pb2 import SampleBatch
from streams import app
from streams.app import PartitionTasks
from streams.logs.logs import Logs
from streams.partition.feed import Event
from streams.partition.outbox import Outbox, Outboxes
from streams.partition.process import Processor
from tests.brokers import Brokers
from tests.conftest import close_clients
from tests.data.handwritten import Raw, Sample
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline

LIMIT = 100_000
VALUES = [Raw([Sample(us) for us in range(400)], sequence=1 + number).bytes() for number in range(60)]


class Worker:
    """The partition tasks of a worker with partition 0. Messages are handed over as Faust does: while they are fetched.
    In an event loop."""

    def __init__(self, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outboxes, self._logs = Outboxes(brokers.settings), Logs(brokers.settings)
        self._failed: list[BaseException] = []
        self.tasks = PartitionTasks(
            brokers.settings, Processor(), self.outboxes, self._logs, "cluster", 0.5, self._failed.append
        )
        self.fetched = asyncio.Event()
        self.fetched.set()
        self.tasks.fetch = lambda topic, partition, on: self.fetched.set() if on else self.fetched.clear()
        self.acknowledged: list[int] = []
        self.held: list[int] = []  # bytes of outputs that were not acknowledged, after each message
        self.sizes: list[int] = []  # of the outputs of each message
        self.full = asyncio.Event()
        put, room = Outbox._put, PartitionTasks._room

        def noting(outbox: Outbox, *arguments: Any) -> Any:
            before = outbox.queued_bytes
            future = put(outbox, *arguments)
            self.held.append(outbox.queued_bytes)
            self.sizes.append(outbox.queued_bytes - before)
            return future

        async def telling(tasks: PartitionTasks) -> None:
            if self.outboxes.queued_bytes > LIMIT:
                self.full.set()
            await room(tasks)

        monkeypatch.setattr(Outbox, "_put", noting)
        monkeypatch.setattr(PartitionTasks, "_room", telling)

    async def deliver(self, offsets: range) -> None:
        for offset in offsets:
            await self.fetched.wait()
            acknowledge = partial(self.acknowledged.append, offset)
            self.tasks.put(RAW, Event(0, offset, b"host", VALUES[offset], acknowledge))
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self._failed
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.tasks.close()
        self._logs.close()
        self.outboxes.close(PATIENCE_S)


def test_a_worker_waits_for_kafka_with_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "QUEUED_BYTES", LIMIT)
    brokers = Brokers([topic.name for topic in TOPICS], 1)

    async def run() -> None:
        worker = Worker(brokers, monkeypatch)
        await worker.tasks.assign({0})
        await worker.deliver(range(1))
        await worker.until(lambda: worker.acknowledged)
        brokers.set_down(1)
        delivering = asyncio.create_task(worker.deliver(range(1, len(VALUES))))
        await worker.until(worker.full.is_set)
        held = worker.outboxes.queued_bytes
        for _ in range(100):
            await asyncio.sleep(0.01)
            assert worker.outboxes.queued_bytes == held
        assert not worker.fetched.is_set()
        assert worker.tasks._tasks[0].queued_bytes(RAW) <= LIMIT // 2 + max(map(len, VALUES))
        assert not delivering.done()
        brokers.set_up(1)
        await worker.until(lambda: len(worker.acknowledged) == len(VALUES))
        assert worker.fetched.is_set()
        assert LIMIT < max(worker.held) <= LIMIT + max(worker.sizes)
        assert sum(worker.sizes) > 2 * LIMIT
        await worker.close()

    asyncio.run(run())
    batches = [SampleBatch.FromString(message.value() or b"") for message in messages(brokers.settings, SAMPLES)]
    assert [batch.source.offset for batch in batches] == list(range(len(VALUES)))
    close_clients()
    brokers.close()
