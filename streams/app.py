"""The Faust application: moves messages of icestream.raw and icestream.activity into lanes, one for each partition.

Faust assigns partitions (both topics' partition n to the same worker), fetches, and commits what is acknowledged; its
own acknowledging is off, as it would commit what failed. Whatever fails ends the worker: the next one starts from what
is committed (streams.restore), and nothing is skipped.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
from mode import CrashingSupervisor

from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams import metrics, quick_fetch, restore
from streams.lane import Event, Lane
from streams.outbox import Outbox
from streams.process import Processor

log = logging.getLogger(__name__)

QUEUED_BYTES = 64_000_000
"""Fetched messages that wait to be processed; beyond it nothing more is fetched."""
_COMMIT_S = 1.0


class Lanes:
    """The lanes of the partitions that are assigned to this worker."""

    def __init__(
        self,
        settings: KafkaSettings,
        processor: Processor,
        outbox: Outbox,
        cluster: str,
        wait_s: float,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.assigned: set[int] = set()
        self.started = False  # partitions, or none, were assigned at least once
        self._settings = settings
        self._new: Callable[[int], Lane] = lambda n: Lane(n, cluster, processor, outbox, wait_s, failed)
        self._lanes: dict[int, Lane] = {}

    async def put(self, topic: str, event: Event) -> None:
        """Hands a message to its lane; waits when too much is waiting."""
        while sum(lane.queued_bytes for lane in self._lanes.values()) > QUEUED_BYTES:
            await asyncio.sleep(0.01)
        lane = self._lanes.get(event.partition)
        if lane is None:
            lane = self._lanes[event.partition] = self._new(event.partition)
            past = asyncio.get_running_loop().run_in_executor(None, restore.read, self._settings, event.partition)
            lane.start(past)
        lane.put(topic, event)

    async def assign(self, partitions: set[int]) -> None:
        """These are the partitions from now on."""
        await self.revoke()
        self.assigned, self.started = partitions, True
        metrics.ASSIGNED.set(len(partitions))
        log.info("assigned partitions: %s", sorted(partitions) or "none")

    async def revoke(self) -> None:
        """Drops all lanes. After a rebalance state is read back, as another worker may have had the partition."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            await lane.close()


def create(settings: KafkaSettings, lanes: Lanes, folder: Path) -> faust.App:
    """The application, not started. `folder`: made by Faust for its tables, of which there are none."""
    app = faust.App(
        STREAMS_GROUP,
        broker=[f"kafka://{server}" for server in settings.kafka.split(",")],
        broker_credentials=credentials(settings),
        broker_client_id="icestream-streams",
        broker_commit_interval=_COMMIT_S,
        broker_max_poll_records=100,
        broker_session_timeout=6.0,
        broker_heartbeat_interval=1.5,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=2_000_000,
        stream_buffer_maxsize=64,
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

    if settings.kafka_in_process:
        quick_fetch.use(app)

    def feed(topic: str) -> Callable[[faust.StreamT[Any]], Any]:
        async def agent(stream: Any) -> None:
            async for event in stream.noack().events():
                message = event.message
                # What was fetched before a rebalance comes again, to whom it now belongs.
                if message.generation_id == app.consumer_generation_id:
                    value = bytes(message.value or b"")
                    await lanes.put(topic, Event(message.partition, message.offset, message.key, value, event.ack))

        return agent

    for topic in (RAW, ACTIVITY):
        channel = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
        app.agent(channel, name=topic, concurrency=1, supervisor_strategy=CrashingSupervisor)(feed(topic))

    async def revoked(*arguments: Any, **more: Any) -> None:
        await lanes.revoke()

    async def assigned(*arguments: Any, **more: Any) -> None:
        of = {topic: {tp.partition for tp in arguments[1] if tp.topic == topic} for topic in (RAW, ACTIVITY)}
        if of[RAW] != of[ACTIVITY]:
            raise RuntimeError(f"assigned partitions that do not belong together: {of}")
        await lanes.assign(of[RAW])

    app.on_partitions_revoked.connect(revoked, weak=False)
    app.on_partitions_assigned.connect(assigned, weak=False)
    return app


def credentials(settings: KafkaSettings) -> Any:
    """TLS and SASL as Faust wants them; None for plain text."""
    protocol = settings.kafka_security_protocol.upper()
    context = None
    if protocol in ("SSL", "SASL_SSL"):
        context = ssl.create_default_context(cafile=settings.kafka_ssl_ca or None)
        if settings.kafka_ssl_certificate:
            context.load_cert_chain(settings.kafka_ssl_certificate, settings.kafka_ssl_key or None)
    if protocol.startswith("SASL_"):
        return faust.SASLCredentials(
            username=settings.kafka_sasl_username, password=settings.kafka_sasl_password, ssl_context=context,
            mechanism=settings.kafka_sasl_mechanism or "PLAIN",
        )  # fmt: skip
    return faust.SSLCredentials(context) if context is not None else None
