"""Process raw batches into samples and stacks.

  icestream streams --kafka kafka-1:9092,kafka-2:9092 --symbol-store s3://profiles/symbols

Workers share the partitions of icestream.raw and icestream.activity: more workers than partitions do nothing. A worker
that cannot go on ends with exit code 1 and loses nothing; have systemd or the like start it again.
"""

import argparse
import asyncio
import logging

from confluent_kafka import KafkaException

from icestream.cli import CommandError
from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import TOPICS
from streams.settings import StreamsSettings
from streams.worker import Worker

_TIMEOUT_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    StreamsSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = StreamsSettings.from_args(args)
    for noisy in ("faust", "aiokafka", "mode"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    cluster = check_topics(settings)
    try:
        error = asyncio.run(_run(settings, cluster))
    except OSError as refused:  # an address that is taken, a folder that cannot be written
        raise CommandError(str(refused)) from None
    if error is not None:
        raise CommandError(str(error) or repr(error))
    return 0


def check_topics(settings: KafkaSettings) -> str:
    """The cluster's ID. Raises CommandError where Kafka or a topic is missing, or they do not fit each other."""
    try:
        with clients.admin_client(settings) as admin:
            metadata = admin.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    missing = [topic.name for topic in TOPICS if topic.name not in metadata.topics]
    if missing:
        raise CommandError(f"topics are missing: {', '.join(missing)}; run `icestream topics create`")
    counts = {topic.name: len(metadata.topics[topic.name].partitions) for topic in TOPICS if topic.per_host}
    if len(set(counts.values())) > 1:
        raise CommandError(f"topics keyed by host must have the same number of partitions, but they have {counts}")
    return str(metadata.cluster_id)


async def _run(settings: StreamsSettings, cluster: str) -> BaseException | None:
    return await Worker(settings, cluster).run()
