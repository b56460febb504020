"""Faust's consumer, which after a rebalance really goes back to the first message that is not committed.

A rebalance drops messages that were fetched and not processed, and Faust then seeks to the committed offsets. Where
nothing is committed yet, aiokafka by itself stays where it is: in a new partition, it would skip up to
`broker_max_poll_records` messages, and with them samples, or the traces of samples. Where this consumer does not help,
as when Kafka fails at that moment, a partition task notices the gap (streams.partition.partition_task).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import faust
from aiokafka.errors import IllegalStateError  # type: ignore[import-untyped]
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer
from faust.types import TP

_FETCH_BYTES, _WAIT_MS = 500_000, 200
"""A fetch waits so long until there are so many bytes: while messages come one by one, a fetch for each of them costs
Kafka and this worker more than the messages do."""
IN_PROCESS_WAIT_MS = 100
"""How long a fetch waits with the in-process broker, which lets the whole time pass if it had no message at first.
Faust waits for 1.5 s and has no setting for it."""


class _Thread(AIOKafkaConsumerThread):
    def __init__(self, consumer: Consumer, in_process: bool, lost_connection: Callable[[], None], **more: Any) -> None:
        super().__init__(consumer, **more)
        self._in_process = in_process
        self._lost_connection = lost_connection

    async def on_start(self) -> None:
        await super().on_start()
        self.add_future(self._await_coordination())

    async def _await_coordination(self) -> None:
        """Fails when aiokafka's coordination does, and with it the worker: without it, nothing is assigned any more."""
        coordination = self._ensure_consumer()._coordinator._coordination_task
        await asyncio.wait([coordination])  # which cancels nothing
        coordination.result()

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Leaves out partitions that were taken away meanwhile."""
        with contextlib.suppress(IllegalStateError):
            await super().seek_wait(partitions)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Returns the committed offsets. Where there is none, or 0, it seeks to the first message that Kafka has."""
        committed: Mapping[TP, int] = await self.call_thread(self._seek_to_committed)
        return committed

    async def _seek_to_committed(self) -> Mapping[TP, int]:
        consumer = self._ensure_consumer()
        committed: Mapping[TP, int] = await consumer.seek_to_committed()
        if uncommitted := [partition for partition, offset in committed.items() if not offset]:
            await consumer.seek_to_beginning(*uncommitted)
        return committed

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Read when it starts.
        client, lost_connection = consumer._client, self._lost_connection
        on_closed = client._on_connection_closed

        def on_connection_closed(connection: Any, reason: Any) -> None:
            lost_connection()
            on_closed(connection, reason)

        client._on_connection_closed = on_connection_closed
        if self._in_process:
            consumer._fetch_max_wait_ms = IN_PROCESS_WAIT_MS
        else:
            consumer._fetch_min_bytes, consumer._fetch_max_wait_ms = _FETCH_BYTES, _WAIT_MS
        return consumer


def use(app: faust.App, in_process: bool, lost_connection: Callable[[], None]) -> None:
    """Makes an application consume this way; call it before the application starts. `lost_connection` is called by its
    thread, before anything comes by another connection."""

    class GroupConsumer(Consumer):
        def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
            return _Thread(self, in_process, lost_connection, loop=self.loop, beacon=self.beacon)

    app.transport.Consumer = GroupConsumer  # type: ignore[misc]  # of this instance only
