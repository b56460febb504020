"""The Faust application: hands messages of icestream.raw and icestream.activity to partition tasks.

Faust assigns partitions (partition n of both topics to the same worker), fetches messages, and commits the offsets of
acknowledged ones. Faust's own acknowledging is off, because it would also commit messages that failed. Any failure ends
the worker. The next worker starts from the committed offsets (streams.partition.recovery), and a worker goes back to
them in each rebalance (streams.logs.group_consumer). What Faust still skips, partition tasks read from Kafka. So no
message is skipped.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]
from confluent_kafka import KafkaException
from mode import CrashingSupervisor

from icestream.kafka import oauth
from icestream.kafka.dead_letters import Rate
from icestream.kafka.readiness import Partition
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams import metrics
from streams.logs import group_consumer
from streams.logs.logs import Logs
from streams.partition import recovery
from streams.partition.feed import Event
from streams.partition.outbox import Outbox, Outboxes
from streams.partition.partition_task import PartitionTask
from streams.partition.process import Processor

log = logging.getLogger(__name__)

QUEUED_BYTES = 64_000_000
"""Limit of the messages that wait to be processed, and of outputs that are not acknowledged. Each topic of each
partition has a share of the messages: above its share, no more of it are fetched. Nothing else is held up then, because
one topic may wait for the other."""
_COMMIT_S = 1.0
_RECOVERIES = 4
"""Partitions that are recovered at a time: each holds some messages that it has read ahead."""


class PartitionTasks:
    """The partition tasks of this worker."""

    def __init__(
        self,
        settings: KafkaSettings,
        processor: Processor,
        outboxes: Outboxes,
        logs: Logs,
        cluster: str,
        wait_s: float,
        failed: Callable[[BaseException], None],
        rate: Rate | None = None,
        limits: TimeLimits = ANY_LIMITS,
    ) -> None:
        """`rate`: of dead letters; None for any number. `limits`: of the times in messages."""
        self.limits = limits
        self.fetch: Callable[[str, int, bool], None] = lambda topic, partition, on: None  # switches fetching on or off
        self.seek: Callable[[str, int, int], Awaitable[None]]  # delivers from an offset on, also once more
        self.assigned: set[int] = set()
        self.breaks = 0  # of connections to Kafka
        self.started = False  # whether there was an assignment of partitions (or of none)
        self._settings = settings
        self._outboxes = outboxes
        self._logs = logs
        self._failed = failed
        self._new: Callable[[int, Outbox], PartitionTask] = lambda partition, outbox: PartitionTask(
            partition, cluster, processor, outbox, logs, wait_s, failed, self._room,
            lambda topic: self._processed(topic, partition),
            lambda topic, offset: self.seek(topic, partition, offset), rate, lambda: self.breaks,
        )  # fmt: skip
        self._tasks: dict[int, PartitionTask] = {}
        self._recovering = asyncio.Semaphore(_RECOVERIES)
        self._looked_back = 0  # messages that were read to find out where recovery begins
        self._revoked = True
        self._looking: asyncio.Task[None] | None = None

    def own(self) -> dict[Partition, int | None]:
        """Returns the partitions of this worker, and what was done for each beside acknowledging its messages
        (`PartitionTask.work`). A partition that is being recovered may wait for the recovery of others. So until its
        recovery has ended, what was done for any partition counts for it.

        None while Kafka, or readers of the in-process broker, have not taken what is to be published. The outbox
        limits how long that may last.
        """
        tasks = dict(self._tasks)
        everywhere = self._looked_back + sum(task.read_again for task in tasks.values())
        recovering = [task for task in tasks.values() if not task.recovered]
        no_room = self._outboxes.queued_bytes > QUEUED_BYTES

        def work(topic: str, number: int) -> int | None:
            task = tasks.get(number)
            if task is not None and task.recovered:
                return None if no_room or task.unpublished else task.work(topic)
            return None if no_room or any(other.unpublished for other in recovering) else everywhere

        return {(topic, number): work(topic, number) for topic in (RAW, ACTIVITY) for number in self.assigned}

    def put(self, topic: str, event: Event) -> None:
        """Hands a message to its partition task. After `revoke`, messages are dropped until the next `assign`."""
        if self._revoked or event.partition not in self.assigned:
            return
        task = self._task(event.partition)
        task.put(topic, event)
        if task.queued_bytes(topic) > self._share():
            self.fetch(topic, event.partition, False)

    def lost_connection(self) -> None:
        """Kafka may have other logs when it is back. Called by the thread that reads."""
        self.breaks += 1

    async def check_logs(self) -> None:
        """Looks whether Kafka still has messages that were processed before: a topic that is made anew within a moment
        breaks no connection. Raises RuntimeError where it has not."""
        tasks = dict(self._tasks)
        feeds = {(topic, number): feed for number, task in tasks.items() for topic, feed in task.feeds.items()}
        marks = {key: feed.checked for key, feed in feeds.items() if feed.checked is not None}
        last = {key: feeds[key].last for key in marks}
        try:
            absent = await self._logs.absent(marks) if marks else set()
        except KafkaException as error:
            log.debug("Kafka does not say whether logs have changed: %s", error)
            return
        for key in marks:
            if key not in absent:
                feeds[key].checked = last[key]
            elif self._tasks.get(key[1]) is tasks[key[1]]:
                tasks[key[1]].changed(feeds[key])

    def _task(self, partition: int) -> PartitionTask:
        """Returns the task of a partition, which begins when it is needed first."""
        task = self._tasks.get(partition)
        if task is None:
            outbox = self._outboxes.open(partition)
            task = self._tasks[partition] = self._new(partition, outbox)
            task.start(self._recovery(outbox, partition))
        return task

    async def _look(self, partitions: set[int]) -> None:
        """Begins the tasks of partitions with messages, also of those to which none may come: Faust may have dropped
        them, or what is committed is of a log that is no more."""
        try:
            async for partition in self._logs.filled(partitions):
                self._task(partition)
        except Exception as error:
            self._failed(error)

    def _processed(self, topic: str, partition: int) -> None:
        task = self._tasks.get(partition)
        if task and task.queued_bytes(topic) <= self._share() // 2:
            self.fetch(topic, partition, True)

    async def _room(self) -> None:
        """Waits while too many bytes of outputs are not acknowledged."""
        while self._outboxes.queued_bytes > QUEUED_BYTES:
            await asyncio.sleep(0.01)

    def _share(self) -> int:
        return QUEUED_BYTES // (2 * max(len(self.assigned), 1))

    async def assign(self, partitions: set[int]) -> None:
        """Takes a new assignment of partitions.

        The tasks of partitions that stay go on with their state. If another worker has had such a partition in between,
        it has taken the partition over from the task's outbox: then the task's next output fails, and the worker ends.
        """
        await self._close(set(self._tasks) - partitions)
        log.info("assigned partitions: %s, kept from before: %s", sorted(partitions) or "none", sorted(self._tasks))
        for partition, task in self._tasks.items():
            task.resume()
            for topic in (RAW, ACTIVITY):  # nothing is queued now
                self.fetch(topic, partition, True)
        self.assigned, self.started, self._revoked = partitions, True, False
        self._looking = asyncio.create_task(self._look(partitions - set(self._tasks)))
        metrics.ASSIGNED.set(len(partitions))

    async def revoke(self) -> None:
        """Pauses all partition tasks: the next assignment says which of them go on."""
        self._drop()
        paused = await asyncio.gather(*(task.pause() for task in self._tasks.values()))
        await self._close({n for n, can_go_on in zip(list(self._tasks), paused, strict=True) if not can_go_on})

    async def close(self) -> None:
        """Closes all partition tasks."""
        self._drop()
        await self._close(set(self._tasks))

    def _drop(self) -> None:
        """Takes no messages until the next assignment."""
        self._revoked = True
        if self._looking is not None:
            self._looking.cancel()

    async def _close(self, partitions: set[int]) -> None:
        for task in [self._tasks.pop(partition) for partition in partitions]:
            await task.close()

    @asynccontextmanager
    async def _recovery(self, outbox: Outbox, partition: int) -> AsyncIterator[recovery.Recovery]:
        """Reads what is there to recover, once nobody else can add to it."""
        await outbox.opened
        async with self._recovering:
            read = await asyncio.to_thread(recovery.read, self._settings, partition, self.limits, self._look_back)
            try:
                yield read
            finally:
                asyncio.get_running_loop().run_in_executor(None, read.close)

    def _look_back(self) -> None:
        """Called by several threads: it may count too few, but it changes."""
        self._looked_back += 1


def create(settings: KafkaSettings, tasks: PartitionTasks, folder: Path) -> faust.App:
    """Returns the application, not started. Faust makes `folder` for its tables, although there are none."""
    app = _application(settings, folder)

    def fetch(topic: str, partition: int, on: bool) -> None:
        topic_partition = faust.types.TP(topic, partition)
        if on:
            app.consumer.on_buffer_drop(topic_partition)
        else:
            app.consumer.on_buffer_full(topic_partition)

    async def seek(topic: str, partition: int, offset: int) -> None:
        await app.consumer.seek_wait({faust.types.TP(topic, partition): offset})

    tasks.fetch, tasks.seek = fetch, seek
    group_consumer.use(app, settings.kafka_in_process, lambda: tasks.lost_connection())

    def feed(topic: str) -> Callable[[faust.StreamT[Any]], Any]:
        async def agent(stream: Any) -> None:
            async for event in stream.noack().events():
                message = event.message
                # A message that was fetched before a rebalance is fetched again after it.
                if message.generation_id == app.consumer_generation_id:
                    value = bytes(message.value or b"")
                    times = tasks.limits.collected(round((message.timestamp or 0) * 1000))  # it is in seconds
                    tasks.put(topic, Event(message.partition, message.offset, message.key, value, event.ack, times))

        return agent

    for topic in (RAW, ACTIVITY):
        channel = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
        app.agent(channel, name=topic, concurrency=1, supervisor_strategy=CrashingSupervisor)(feed(topic))

    async def revoked(*arguments: Any, **more: Any) -> None:
        await tasks.revoke()

    async def assigned(*arguments: Any, **more: Any) -> None:
        partitions = {topic: {tp.partition for tp in arguments[1] if tp.topic == topic} for topic in (RAW, ACTIVITY)}
        if partitions[RAW] != partitions[ACTIVITY]:
            raise RuntimeError(f"raw and activity must have the same partitions, but were assigned {partitions}")
        await tasks.assign(partitions[RAW])

    app.on_partitions_revoked.connect(revoked, weak=False)
    app.on_partitions_assigned.connect(assigned, weak=False)
    return app


def _application(settings: KafkaSettings, folder: Path) -> faust.App:
    """Returns an application that has no agents yet."""
    app = faust.App(
        STREAMS_GROUP,
        broker=[f"kafka://{server}" for server in settings.kafka.split(",")],
        broker_credentials=credentials(settings),
        broker_client_id="icestream-streams",
        broker_commit_interval=_COMMIT_S,
        broker_max_poll_records=100,
        broker_session_timeout=6.0,
        broker_rebalance_timeout=20.0,  # well below `watchdog_s`
        broker_heartbeat_interval=1.5,
        # After Kafka's restart, the worker that assigns partitions may know of none. (By default, for five minutes.)
        consumer_metadata_max_age_ms=5_000,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=2_000_000,
        stream_buffer_maxsize=10_000,  # nothing waits there: PartitionTasks say when not to fetch
        stream_wait_empty=False,
        agent_supervisor=CrashingSupervisor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        store="memory://",
        datadir=folder,
        key_serializer="raw",
        value_serializer="raw",
    )
    if settings.kafka.startswith("127.0.0.1:"):  # nobody listens in there
        logging.getLogger("aiokafka.conn").addFilter(lambda record: "in the clear" not in record.getMessage())
    # For standbys, the assignor lets workers keep what fits under the rounded-up share: 2, 2 and 0 of 4 partitions.
    # There are no tables, so there is nothing to stand by for. (The setting for it would make Faust take another
    # assignor, which moves all partitions at each rebalance and separates those of the two topics.)
    app.assignor.replicas = 0
    return app


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Gives aiokafka a token whenever it connects."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def token(self) -> str:
        """Raises TokenError."""
        token = await asyncio.get_running_loop().run_in_executor(None, oauth.token, self._settings)
        return token.value


def credentials(settings: KafkaSettings) -> Any:
    """Returns TLS and SASL settings for Faust; None for plain text."""
    protocol = settings.kafka_security_protocol.upper()
    context = None
    if protocol in ("SSL", "SASL_SSL"):
        context = ssl.create_default_context(cafile=settings.kafka_ssl_ca or None)
        if settings.kafka_ssl_certificate:
            context.load_cert_chain(settings.kafka_ssl_certificate, settings.kafka_ssl_key or None)
    if protocol.startswith("SASL_") and settings.kafka_sasl_mechanism.upper() == oauth.MECHANISM:
        return faust.OAuthCredentials(oauth_cb=Tokens(settings), ssl_context=context)
    if protocol.startswith("SASL_"):
        return faust.SASLCredentials(
            username=settings.kafka_sasl_username, password=settings.kafka_sasl_password, ssl_context=context,
            mechanism=settings.kafka_sasl_mechanism or "PLAIN",
        )  # fmt: skip
    return faust.SSLCredentials(context) if context is not None else None
