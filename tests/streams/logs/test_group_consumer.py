"""What Faust fetches, on the in-process broker."""

import asyncio
from pathlib import Path
from typing import cast

import faust

from icestream.kafka import clients
from icestream.messages.plausible import ANY_LIMITS
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from streams.app import PartitionTasks, create
from streams.partition.feed import Event
from tests.waiting import PATIENCE_S

MESSAGES = 150
"""More than Faust takes at a time."""
Place = tuple[str, int]
"""Topic and offset."""


class Fetched:
    """Notes messages, where partition tasks would process them."""

    limits = ANY_LIMITS

    def __init__(self) -> None:
        self.offsets: dict[str, list[int]] = {RAW: [], ACTIVITY: []}
        self.events: dict[Place, Event] = {}

    def put(self, topic: str, event: Event) -> None:
        self.offsets[topic].append(event.offset)
        self.events[topic, event.offset] = event

    async def revoke(self) -> None:
        """There is nothing to pause."""

    async def assign(self, partitions: set[int]) -> None:
        """Takes any."""

    def lost_connection(self) -> None:
        """Nothing is processed."""

    async def until_all(self) -> None:
        """Waits for the last message of both topics, and forgets the messages."""
        async with asyncio.timeout(PATIENCE_S):
            while any(MESSAGES - 1 not in offsets for offsets in self.offsets.values()):
                await asyncio.sleep(0.01)


async def seek(app: faust.App) -> None:
    """As in a rebalance: messages that Faust has fetched are dropped, and it goes back to what is committed."""
    app.consumer.stop_flow()
    await app.consumer.perform_seek()
    app.flow_control.resume()
    app.consumer.resume_flow()


def test_messages_that_a_rebalance_drops_are_fetched_again(in_process_broker: KafkaSettings, tmp_path: Path) -> None:
    """Also where nothing is committed yet: aiokafka does not go back then, and 100 messages were skipped for good."""
    producer = clients.producer(in_process_broker)
    for _ in range(MESSAGES):
        for topic in (RAW, ACTIVITY):
            producer.produce(topic, b"message", partition=0)
    assert producer.flush(PATIENCE_S) == 0

    async def run() -> None:
        fetched = Fetched()
        app = create(in_process_broker, cast(PartitionTasks, fetched), tmp_path)
        started = asyncio.create_task(app.start())
        await fetched.until_all()
        for offset in range(10):
            fetched.events[RAW, offset].ack()
        await app.consumer.commit()
        fetched.offsets = {RAW: [], ACTIVITY: []}
        await seek(app)
        await fetched.until_all()
        assert fetched.offsets == {RAW: list(range(10, MESSAGES)), ACTIVITY: list(range(MESSAGES))}
        await app.stop()
        started.cancel()

    asyncio.run(run())
