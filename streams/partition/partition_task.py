"""Runs one partition's messages through the processor, and acknowledges them in the order of their offsets.

**Raw and activity wait for each other, as far as Kafka has them.** A collector publishes activity before the raw batch
that promises it. So a raw batch waits until the promised activity is processed, or until all activity that Kafka had
after the batch arrived is processed. It never waits for activity that Kafka does not have: then its samples are
published without a trace, and a correction follows. So no collector holds up the others of its partition. Activity
waits only if it is far ahead of raw batches that Kafka has.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from confluent_kafka import KafkaException

from icestream.kafka.dead_letters import Rate, reason
from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.raw import RawColumns, decode_raw
from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.logs.logs import Logs
from streams.partition.feed import Event, Feed
from streams.partition.outbox import UNACKNOWLEDGED, Outbox
from streams.partition.process import OutputMessages, Processor
from streams.partition.recovery import Rebuilding, Recovery

log = logging.getLogger(__name__)

PAUSE_S = 3.0
"""How long a rebalance waits for outputs; a session lasts 6 s."""
_ASK_AGAIN_S = 0.5
_IDLE_S = 20.0
"""Time without a message after which Kafka is asked whether it has one. The second answer counts, so there has to be
time for two before `watchdog_s`."""
_Process = Callable[[Event], Awaitable["asyncio.Future[None]"]]


class PartitionTask:
    """Processes one partition from `start` to `close`.

    For each topic, one asyncio task processes messages, and another waits for the broker and acknowledges them. If a
    topic's messages wait for the other's, and none of those is processed for `wait_s`, they wait no longer. A message
    that cannot be decoded or processed becomes a dead letter. Any other error goes to `failed`, and nothing after it is
    acknowledged. `room` waits until more outputs may be published. `processed` is called with a message's topic when it
    is processed. `seek` makes Kafka deliver a topic's messages from an offset on, also once more.
    """

    def __init__(
        self,
        partition: int,
        cluster: str,
        processor: Processor,
        outbox: Outbox,
        logs: Logs,
        wait_s: float,
        failed: Callable[[BaseException], None],
        room: Callable[[], Awaitable[None]],
        processed: Callable[[str], None],
        seek: Callable[[str, int], Awaitable[None]],
        rate: Rate | None = None,
        breaks: Callable[[], int] = lambda: 0,
    ) -> None:
        """`rate`: of dead letters; None for any number. `breaks`: how often connections to Kafka broke."""
        self.partition = partition
        self._rate = rate
        self.read_again = 0  # messages, for recovery or because Faust skipped them
        self.recovered = False
        self._cluster = cluster
        self._processor = processor
        self._outbox = outbox
        self._logs = logs
        self._wait_s = wait_s
        self._failed = failed
        self._room = room
        self._processed = processed
        self._seek = seek
        self._breaks = breaks
        self.feeds = {topic: Feed(topic, breaks=breaks()) for topic in (RAW, ACTIVITY)}
        self._unpaused = asyncio.Event()
        self._warned_of_stall = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, recovery: AbstractAsyncContextManager[Recovery]) -> None:
        """Starts with the recovery of the partition's state."""
        self._tasks.append(asyncio.create_task(self._guard(self._start(recovery))))

    def put(self, topic: str, event: Event) -> None:
        """Queues a message; messages come in the order of their offsets."""
        feed = self.feeds[topic]
        feed.queued_bytes += event.bytes
        feed.queue.put_nowait(event)

    def queued_bytes(self, topic: str) -> int:
        return self.feeds[topic].queued_bytes

    @property
    def unpublished(self) -> bool:
        """Whether Kafka has not taken everything yet that was to be published."""
        return self._outbox.queued_bytes > 0

    def work(self, topic: str) -> int:
        """Returns a number that grows with what is done for a topic beside acknowledging its messages: some are read
        again, and while it waits for the other topic, messages of that are processed."""
        feed, other = self._pair(topic)
        return self.read_again + (other.next_offset if feed.waits else 0)

    async def pause(self) -> bool:
        """Stops processing until `resume`, and forgets the queued messages, which Kafka sends again.

        Returns whether everything that was published is acknowledged, so that the task can go on with its state if it
        keeps the partition.
        """
        self._unpaused.clear()
        for feed in self.feeds.values():
            while not feed.queue.empty():
                feed.queued_bytes -= feed.queue.get_nowait().bytes
        if not self.recovered:
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

    async def _start(self, recovery: AbstractAsyncContextManager[Recovery]) -> None:
        async with recovery as read:
            await self._recover(read)
            raw_committed = read.plan.raw_committed
        self.recovered = True
        self._unpaused.set()
        raw, activity = self.feeds[RAW], self.feeds[ACTIVITY]
        state = self._processor.partition(self.partition)
        raw.next_offset, activity.next_offset = max(state.raw_next, raw_committed), state.activity_next
        for feed in (raw, activity):
            last = state.position().last(feed.topic)
            feed.last = feed.checked = last if last and last.checksum else None
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
        rebuilding = Rebuilding(recovery.plan, self._processor, self.partition, self._cluster)
        while portion := await asyncio.to_thread(recovery.portion):
            for message in portion:
                key, stacks = rebuilding.add(message)
                if stacks:
                    await self._room()
                    deliveries.append(self._outbox.send(OutputMessages(key, stacks)))
                self.read_again += 1
                await asyncio.sleep(0)
        rebuilding.finish()
        await asyncio.gather(*deliveries)

    async def _run(self, feed: Feed, process: _Process) -> None:
        while True:
            event = await feed.get(_IDLE_S)
            if feed.breaks != self._breaks() or (feed.doubted and event is None):
                await self._doubt(feed)
            if event is None:
                if not feed.doubted:
                    await self._look_at_end(feed, process)
                continue
            self._compare(feed, event)
            if not feed.doubted:
                await self._run_skipped(feed, event.offset, process)
                await self._run_one(feed, event, process)
            feed.queued_bytes -= event.bytes
            self._processed(feed.topic)

    async def _doubt(self, feed: Feed) -> None:
        """Has the last message come again, before others are processed: the log may have changed when Kafka was away.

        Messages that come before it were fetched before that, and come again after it. Raises RuntimeError.
        """
        feed.breaks, feed.doubted = self._breaks(), False
        if feed.last is None:
            return
        asked_s = time.monotonic()
        while feed.end_asked_s < asked_s:
            await self._ask_end(feed)
        if feed.last.offset >= feed.end:
            self.changed(feed)
        if feed.last.offset >= feed.low:
            feed.doubted = True
            await self._seek(feed.topic, feed.last.offset)

    def _compare(self, feed: Feed, event: Event) -> None:
        """Ends the doubt when the last message comes again. Raises RuntimeError if another one is in its place."""
        if feed.last is None or event.offset != feed.last.offset:
            return
        if event.mark != feed.last:
            self.changed(feed)
        feed.doubted = False

    def changed(self, feed: Feed) -> NoReturn:
        """Raises RuntimeError: the log of a topic is another one than what was processed."""
        raise RuntimeError(
            f"{feed.topic}/{self.partition} ends at {feed.end}, but was processed up to {feed.next_offset}, or has"
            " another message there: the topic was made anew, or Kafka has lost messages. The next worker begins with"
            " what is new"
        )

    async def _look_at_end(self, feed: Feed, process: _Process) -> None:
        """Processes what Kafka had at an earlier look, and has not delivered since. Then makes Kafka deliver once more
        what is not committed, so that it is committed even if no later message ever comes. Nothing is processed
        twice."""
        try:
            log_end, committed = await self._logs.lag(feed.topic, self.partition)
        except KafkaException as error:
            log.debug("Kafka does not say where %s/%d ends: %s", feed.topic, self.partition, error)
            return
        if log_end.high < feed.next_offset:
            await self._check_log(feed, time.monotonic())
        feed.skip_to(log_end.low)
        end, feed.earlier_end = feed.earlier_end, log_end.high
        if self._idle(feed):  # what a log that was made anew has before the committed offset may be left, too
            await self._run_skipped(feed, end, process)
        if end > committed and self._idle(feed):
            await self._seek(feed.topic, committed)

    def _idle(self, feed: Feed) -> bool:
        return self._unpaused.is_set() and feed.queue.empty()

    async def _run_skipped(self, feed: Feed, end: int, process: _Process) -> None:
        """Processes what Kafka has before `end`: in a rebalance, Faust may drop messages and go on behind them. Most
        offsets that Faust skips have no message: it was deleted, or the offset is the end of a transaction."""
        count = 0
        if end > feed.next_offset:
            async for event in self._logs.read(feed.topic, self.partition, feed.next_offset, end):
                await self._run_one(feed, event, process)
                metrics.READ_AGAIN.labels(feed.topic).inc()
                self.read_again += 1
                count += 1
            feed.skip_to(end)
        if count:
            log.warning("%s/%d: read %d messages before %d that Faust skipped", feed.topic, self.partition, count, end)

    async def _run_one(self, feed: Feed, event: Event, process: _Process) -> None:
        await self._room()
        await self._unpaused.wait()
        again = event.offset < feed.next_offset
        if again:
            await self._check_log(feed, event.arrived_s)
        delivery = self._outbox.sent() if again else await process(event)
        feed.deadline_s = None
        if not again:
            feed.last = event.mark
            feed.checked = feed.checked or event.mark
        feed.skip_to(event.offset + 1)
        feed.unacknowledged.append((event, delivery))
        feed.sent.set()
        while len(feed.unacknowledged) >= UNACKNOWLEDGED:
            feed.acknowledged.clear()
            await feed.acknowledged.wait()

    async def _check_log(self, feed: Feed, since_s: float) -> None:
        """Raises RuntimeError if the log ends, as Kafka says after `since_s`, before what was processed: the topic was
        deleted and created again. Then messages only seem to come again, or Faust takes them for old ones."""
        while feed.end_asked_s < since_s:
            await self._ask_end(feed)
        if feed.end < feed.next_offset:
            self.changed(feed)

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
        try:
            raw = decode_raw(event.value, event.times)
        except BadMessage as error:
            return self._dead(RAW, event, "decode", error)
        await self._await_activity(event, raw)
        await self._unpaused.wait()
        try:
            outputs = self._processor.raw_columns(raw, self._message_id(RAW, event))
        except Exception as error:  # a bug must not stop the partition for good
            # It may hold announcements that were not sent.
            self._processor.partition(self.partition).announcer.forget()
            return self._dead(RAW, event, "process", error)
        return self._outbox.send(outputs)

    async def _activity(self, event: Event) -> "asyncio.Future[None]":
        try:
            activity = decode_activity(event.value, event.times)
        except BadMessage as error:
            return self._dead(ACTIVITY, event, "decode", error)
        raw = self.feeds[RAW]
        await self._wait(
            ACTIVITY, event, lambda: not raw.waits and self._processor.activity_is_ahead(activity, self.partition)
        )
        await self._unpaused.wait()
        try:
            outputs = self._processor.activity_columns(activity, self._message_id(ACTIVITY, event))
        except Exception as error:
            return self._dead(ACTIVITY, event, "process", error)
        return self._outbox.send(outputs)

    def _dead(self, topic: str, event: Event, stage: str, error: Exception) -> "asyncio.Future[None]":
        if not isinstance(error, BadMessage):
            log.error("%s/%d/%d cannot be processed", topic, self.partition, event.offset, exc_info=error)
        metrics.DEAD_LETTERS.labels(topic, reason(error)).inc()
        if self._rate is not None and not self._rate.admits(f"streams {stage}", topic, error):
            return self._outbox.sent()
        return self._outbox.dead_letter(topic, event.offset, event.key, event.value, stage, error)

    async def _await_activity(self, event: Event, raw: RawColumns) -> None:
        outcome = await self._wait(RAW, event, lambda: self._processor.awaits_activity(raw, self.partition))
        if outcome is not None:
            metrics.WAITED.labels(outcome).inc()
        if outcome == "stalled" and not self._warned_of_stall:
            self._warned_of_stall = True
            log.warning("partition %d: raw batches go ahead of activity that Kafka does not deliver", self.partition)
        if outcome == "absent":
            self._processor.activity_is_absent(raw, self.partition)

    async def _wait(self, topic: str, event: Event, should: Callable[[], bool]) -> str | None:
        """Waits while `should()`, at most until all messages of the other topic that Kafka had after the event arrived
        are processed. Returns why the wait ended: "came", "absent" or "stalled"; None if there was none."""
        if not should():
            return None
        feed, other = self._pair(topic)
        feed.waits = True
        feed.moved.set()  # the other topic need not wait for this one now
        try:
            while should():
                now_s = time.monotonic()
                if other.deadline_s is None:
                    other.deadline_s = now_s + self._wait_s
                if now_s >= other.deadline_s:
                    return "stalled"
                if other.next_offset < other.end:
                    await other.until_moved(other.deadline_s - now_s)
                elif other.end_asked_s < event.arrived_s:
                    await self._ask_end(other)
                else:
                    other.deadline_s = None
                    return "absent"
            return "came"
        finally:
            feed.waits = False

    def _pair(self, topic: str) -> tuple[Feed, Feed]:
        """Returns the feed of a topic, and the other one."""
        return self.feeds[topic], self.feeds[ACTIVITY if topic == RAW else RAW]

    async def _ask_end(self, feed: Feed) -> None:
        asked_s = time.monotonic()
        try:
            log_end = await self._logs.end(feed.topic, self.partition)
        except KafkaException as error:
            log.debug("Kafka does not say where %s/%d ends: %s", feed.topic, self.partition, error)
            await asyncio.sleep(_ASK_AGAIN_S)
            return
        feed.skip_to(log_end.low)  # Kafka has deleted what is before it
        feed.low, feed.end, feed.end_asked_s = log_end.low, log_end.high, asked_s

    def _message_id(self, topic: str, event: Event) -> MessageId:
        return MessageId(self._cluster, topic, self.partition, event.offset, event.mark.checksum)
