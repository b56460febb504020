"""Runs one partition's messages through the processor, and acknowledges them in the order of their offsets."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from icestream.dead_letters import Rate, reason
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_TIME, Times
from icestream.messages.raw import RawColumns, decode_raw
from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.deduplicate import Announced
from streams.outbox import Outbox
from streams.process import Processor
from streams.recovery import Recovery, recover

log = logging.getLogger(__name__)

AHEAD_NS = 30 * 10**9
"""While raw batches wait to be processed, activity is processed at most this far ahead of them."""
PACE_S = 2.0
"""No activity message waits longer than this for raw batches."""
UNACKNOWLEDGED = 64
"""Messages whose outputs may be unacknowledged at a time."""
PAUSE_S = 3.0
"""How long a rebalance waits for outputs; a session lasts 6 s."""


@dataclass(frozen=True)
class Event:
    """A message from Kafka, and the function that acknowledges it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    ack: Callable[[], object]
    times: Times = ANY_TIME  # that it may hold


@dataclass
class Feed:
    """The messages of one topic that wait, and those that are not acknowledged."""

    topic: str
    queue: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    unacknowledged: "deque[tuple[Event, asyncio.Future[None]]]" = field(default_factory=deque)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


class PartitionTask:
    """Processes one partition from `start` to `close`.

    For each topic, one asyncio task processes messages, and another waits for the broker and acknowledges them. A raw
    batch waits up to `wait_s` for the activity that its collector promised. Activity waits for raw batches only if it
    is far ahead. A message that cannot be decoded or processed becomes a dead letter. Any other error goes to
    `failed`, and nothing after it is acknowledged.
    """

    def __init__(
        self,
        partition: int,
        cluster: str,
        processor: Processor,
        outbox: Outbox,
        wait_s: float,
        failed: Callable[[BaseException], None],
        rate: Rate | None = None,
    ) -> None:
        """`rate`: of dead letters; None for any number."""
        self.partition = partition
        self._rate = rate
        self.queued_bytes = 0
        self.recovered = 0  # messages that were processed once more
        self._cluster = cluster
        self._processor = processor
        self._outbox = outbox
        self._wait_s = wait_s
        self._failed = failed
        self._feeds = {topic: Feed(topic) for topic in (RAW, ACTIVITY)}
        self._activity_came = asyncio.Event()
        self._unpaused = asyncio.Event()
        self._started = False
        self._raw_end_unix_nano = 0  # of the latest window
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, recovery: Awaitable[Recovery]) -> None:
        """Starts with the recovery of the partition's state."""
        self._tasks.append(asyncio.create_task(self._guard(self._start(recovery))))

    def put(self, topic: str, event: Event) -> None:
        """Queues a message; messages come in the order of their offsets."""
        self.queued_bytes += len(event.value)
        self._feeds[topic].queue.put_nowait(event)

    async def pause(self) -> bool:
        """Stops processing until `resume`, and forgets the queued messages, which Kafka sends again.

        Returns whether everything that was published is acknowledged, so that the task can go on with its state if it
        keeps the partition.
        """
        self._unpaused.clear()
        for feed in self._feeds.values():
            while not feed.queue.empty():
                self.queued_bytes -= len(feed.queue.get_nowait().value)
        if not self._started:
            return False
        done, _ = await asyncio.wait([self._outbox.sent()], timeout=PAUSE_S)
        return all(sent.exception() is None for sent in done) and bool(done)

    def resume(self) -> None:
        """Goes on with the state as it is. Messages that come again are acknowledged after their first outputs."""
        self._unpaused.set()

    async def close(self) -> None:
        """Stops. Nothing is acknowledged afterwards."""
        self._outbox.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._processor.forget(self.partition)

    async def _start(self, recovery: Awaitable[Recovery]) -> None:
        await self._recover(await recovery)
        self._started = True
        self._unpaused.set()
        raw, activity = self._feeds[RAW], self._feeds[ACTIVITY]
        for work in (
            self._run(raw, self._raw),
            self._run(activity, self._activity),
            self._ack(raw),
            self._ack(activity),
        ):
            self._tasks.append(asyncio.create_task(self._guard(work)))

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    async def _recover(self, recovery: Recovery) -> None:
        """Rebuilds the state; publishes only the announcements that may be missing."""
        deliveries: list[asyncio.Future[None]] = []
        for outputs in recover(recovery, self._processor, self.partition, self._cluster):
            if outputs.stacks:
                deliveries.append(self._outbox.send_stacks(outputs))
            self.recovered += 1
            await asyncio.sleep(0)
        await asyncio.gather(*deliveries)

    async def _run(self, feed: Feed, process: Callable[[Event], Awaitable["asyncio.Future[None]"]]) -> None:
        while True:
            event = await feed.queue.get()
            await self._unpaused.wait()
            delivery = await process(event)
            self.queued_bytes -= len(event.value)
            feed.unacknowledged.append((event, delivery))
            feed.sent.set()
            while len(feed.unacknowledged) >= UNACKNOWLEDGED:
                feed.acknowledged.clear()
                await feed.acknowledged.wait()

    async def _ack(self, feed: Feed) -> None:
        while True:
            while not feed.unacknowledged:
                feed.sent.clear()
                await feed.sent.wait()
            event, delivery = feed.unacknowledged[0]
            await delivery
            event.ack()
            feed.unacknowledged.popleft()
            feed.acknowledged.set()

    async def _raw(self, event: Event) -> "asyncio.Future[None]":
        state = self._processor.partition(self.partition)
        if event.offset < state.raw_next:
            return self._outbox.sent()
        try:
            raw = decode_raw(event.value, event.times)
        except BadMessage as error:
            return self._dead(RAW, event, "decode", error)
        self._raw_end_unix_nano = raw.end_unix_nano
        await self._await_activity(raw)
        await self._unpaused.wait()
        try:
            outputs = self._processor.raw_columns(raw, self._message_id(RAW, event.offset))
        except Exception as error:  # a bug must not stop the partition for good
            state.announced = Announced()  # it may hold announcements that were not sent
            return self._dead(RAW, event, "process", error)
        return self._outbox.send(outputs)

    async def _activity(self, event: Event) -> "asyncio.Future[None]":
        state = self._processor.partition(self.partition)
        if event.offset < state.activity_next:
            return self._outbox.sent()
        try:
            activity = decode_activity(event.value, event.times)
        except BadMessage as error:
            return self._dead(ACTIVITY, event, "decode", error)
        await self._keep_pace(activity)
        await self._unpaused.wait()
        try:
            outputs = self._processor.activity_columns(activity, self._message_id(ACTIVITY, event.offset))
        except Exception as error:
            return self._dead(ACTIVITY, event, "process", error)
        self._activity_came.set()
        return self._outbox.send(outputs)

    def _dead(self, topic: str, event: Event, stage: str, error: Exception) -> "asyncio.Future[None]":
        if not isinstance(error, BadMessage):
            log.error("%s/%d/%d cannot be processed", topic, self.partition, event.offset, exc_info=error)
        metrics.DEAD_LETTERS.labels(topic, reason(error)).inc()
        if self._rate is not None and not self._rate.admits(f"streams {stage}", topic, error):
            return self._outbox.sent()
        return self._outbox.dead_letter(topic, event.offset, event.key, event.value, stage, error)

    async def _await_activity(self, raw: RawColumns) -> None:
        deadline = time.monotonic() + self._wait_s
        waited = False
        while self._processor.awaits_activity(raw, self.partition):
            waited = True
            self._activity_came.clear()
            try:
                await asyncio.wait_for(self._activity_came.wait(), deadline - time.monotonic())
            except TimeoutError:
                metrics.WAITED.labels("timeout").inc()
                self._processor.give_up_waiting(raw, self.partition)
                return
        if waited:
            metrics.WAITED.labels("came").inc()

    async def _keep_pace(self, activity: ActivityColumns) -> None:
        deadline = time.monotonic() + PACE_S
        while (
            0 < self._raw_end_unix_nano < activity.complete_unix_nano - AHEAD_NS
            and not self._feeds[RAW].queue.empty()
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(0.02)

    def _message_id(self, topic: str, offset: int) -> MessageId:
        return MessageId(self._cluster, topic, self.partition, offset)
