"""One partition's messages on their way through the processor: each topic in order, and acknowledged in order."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.columns import ActivityColumns, RawColumns
from streams.decode import BadMessage, decode_activity, decode_raw
from streams.deduplicate import Announced
from streams.outbox import Outbox
from streams.process import Processor
from streams.publish import Origin
from streams.restore import Past, again

log = logging.getLogger(__name__)

AHEAD_NS = 30 * 10**9
"""While raw batches wait to be processed, activity is not processed further ahead of them: it is held in memory."""
PACE_S = 2.0
"""... but no message is held up for longer."""
UNDER_WAY = 64
"""Messages whose outputs may be unacknowledged at a time."""


@dataclass(frozen=True)
class Event:
    """A message from Kafka, with the means to acknowledge it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    ack: Callable[[], object]


@dataclass
class Feed:
    """Messages of one topic."""

    topic: str
    queue: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)
    under_way: "deque[tuple[Event, asyncio.Future[None]]]" = field(default_factory=deque)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


class Lane:
    """Runs from `start` to `close`.

    Each topic has a task that processes, and one that waits for the broker and acknowledges, in order. A raw batch
    waits for activity that its collector promised, up to `wait_s`; activity never waits for raw, except not to run
    ahead of it. What cannot be decoded, or processed, goes to the dead letters. Any other error goes to `failed`, and
    nothing after it is acknowledged.
    """

    def __init__(
        self,
        partition: int,
        cluster: str,
        processor: Processor,
        outbox: Outbox,
        wait_s: float,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.partition = partition
        self.queued_bytes = 0
        self._cluster = cluster
        self._processor = processor
        self._outbox = outbox
        self._wait_s = wait_s
        self._failed = failed
        self._feeds = {topic: Feed(topic) for topic in (RAW, ACTIVITY)}
        self._activity_came = asyncio.Event()
        self._raw_end_ns = 0  # of the window in hand, or the last one
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, past: "asyncio.Future[Past]") -> None:
        """Begins: first with what is to be done again."""
        self._tasks.append(asyncio.create_task(self._guard(self._start(past))))

    def put(self, topic: str, event: Event) -> None:
        """Takes a message in; they come in order of their offsets."""
        self.queued_bytes += len(event.value)
        self._feeds[topic].queue.put_nowait(event)

    async def close(self) -> None:
        """Stops; what is under way is not acknowledged any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._processor.forget(self.partition)

    async def _start(self, past: "asyncio.Future[Past]") -> None:
        await self._again(await past)
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

    async def _again(self, past: Past) -> None:
        """Processes again what the worker before published; publishes only announcements that may be missing."""
        announced: list[asyncio.Future[None]] = []
        for outputs in again(past, self._processor, self.partition, self._cluster):
            if outputs.stacks:
                announced.append(await self._outbox.send_stacks(outputs, self.partition))
            await asyncio.sleep(0)
        await asyncio.gather(*announced)

    async def _run(self, feed: Feed, process: Callable[[Event], Awaitable["asyncio.Future[None]"]]) -> None:
        while True:
            event = await feed.queue.get()
            delivery = await process(event)
            self.queued_bytes -= len(event.value)
            feed.under_way.append((event, delivery))
            feed.sent.set()
            while len(feed.under_way) >= UNDER_WAY:
                feed.acknowledged.clear()
                await feed.acknowledged.wait()

    async def _ack(self, feed: Feed) -> None:
        while True:
            while not feed.under_way:
                feed.sent.clear()
                await feed.sent.wait()
            event, delivery = feed.under_way[0]
            await delivery
            event.ack()
            feed.under_way.popleft()
            feed.acknowledged.set()

    async def _raw(self, event: Event) -> "asyncio.Future[None]":
        state = self._processor.partition(self.partition)
        if event.offset < state.raw_next:
            return _done()
        try:
            raw = decode_raw(event.value)
        except BadMessage as error:
            return self._dead(RAW, event, "decode", error)
        self._raw_end_ns = raw.end_unix_nano
        await self._await_activity(raw)
        try:
            outputs = self._processor.raw_columns(raw, self._origin(RAW, event.offset))
        except Exception as error:  # a mistake of ours must not stop the partition for good
            state.announced = Announced()  # some may be noted that were not sent
            return self._dead(RAW, event, "process", error)
        return await self._outbox.send(outputs, self.partition)

    async def _activity(self, event: Event) -> "asyncio.Future[None]":
        state = self._processor.partition(self.partition)
        if event.offset < state.activity_next:
            return _done()
        try:
            activity = decode_activity(event.value)
        except BadMessage as error:
            return self._dead(ACTIVITY, event, "decode", error)
        await self._keep_pace(activity)
        try:
            outputs = self._processor.activity_columns(activity, self._origin(ACTIVITY, event.offset))
        except Exception as error:
            return self._dead(ACTIVITY, event, "process", error)
        self._activity_came.set()
        return await self._outbox.send(outputs, self.partition)

    def _dead(self, topic: str, event: Event, stage: str, error: Exception) -> "asyncio.Future[None]":
        if not isinstance(error, BadMessage):
            log.error("%s/%d/%d cannot be processed", topic, self.partition, event.offset, exc_info=error)
        return self._outbox.dead_letter(topic, self.partition, event.offset, event.key, event.value, stage, error)

    async def _await_activity(self, raw: RawColumns) -> None:
        deadline = time.monotonic() + self._wait_s
        waited = False
        while self._processor.awaits_activity(raw, self.partition):
            waited = True
            self._activity_came.clear()
            try:
                await asyncio.wait_for(self._activity_came.wait(), deadline - time.monotonic())
            except TimeoutError:
                metrics.WAITED.labels("in vain").inc()
                self._processor.give_up_waiting(raw, self.partition)
                return
        if waited:
            metrics.WAITED.labels("came").inc()

    async def _keep_pace(self, activity: ActivityColumns) -> None:
        deadline = time.monotonic() + PACE_S
        while (
            0 < self._raw_end_ns < activity.complete_unix_nano - AHEAD_NS
            and not self._feeds[RAW].queue.empty()
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(0.02)

    def _origin(self, topic: str, offset: int) -> Origin:
        return Origin(self._cluster, topic, self.partition, offset)


def _done() -> "asyncio.Future[None]":
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
