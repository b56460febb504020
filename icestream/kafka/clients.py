"""Configuration of confluent-kafka clients from the settings."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from icestream.kafka import oauth
from icestream.kafka.log_repeats import KAFKA_CLIENT
from icestream.settings import KafkaSettings
from icestream.topics import UNREAD_GROUP

PARTITIONER = "murmur2_random"
"""What the Java client and aiokafka do; librdkafka's default would send a host's messages to another partition."""
MAY_REPEAT: dict[str, Any] = {"enable.idempotence": False}
"""For a producer of messages that may come twice, and that lives as long as its process: an idempotent one takes
nothing more after a fatal error, for instance once Kafka has lost the end of a log."""
_ANSWER_S = 30.0
_COMMIT_S = 20.0
_LOGGED: dict[str, Any] = {"logger": logging.getLogger(KAFKA_CLIENT)}
"""For clients that are polled all the time: until then, what librdkafka logs waits in memory."""


def client_config(settings: KafkaSettings) -> dict[str, Any]:
    """The configuration that every librdkafka client of ours needs."""
    config: dict[str, Any] = {
        "bootstrap.servers": settings.kafka,
        "security.protocol": settings.kafka_security_protocol,
        "sasl.mechanism": settings.kafka_sasl_mechanism,
        "sasl.username": settings.kafka_sasl_username,
        "sasl.password": settings.kafka_sasl_password,
        "ssl.ca.location": settings.kafka_ssl_ca,
        "ssl.certificate.location": settings.kafka_ssl_certificate,
        "ssl.key.location": settings.kafka_ssl_key,
        "client.id": "icestream",
        # When topics that were made anew, and partitions that were added, are noticed: else after five minutes.
        "topic.metadata.refresh.interval.ms": 20_000,
    }
    if settings.kafka_sasl_mechanism.upper() == oauth.MECHANISM:
        config["oauth_cb"] = lambda _: tuple(oauth.token(settings))
    return {key: value for key, value in config.items() if value}


def producer(settings: KafkaSettings, **more: Any) -> Producer:
    """An idempotent producer with zstd and the partitioner of all our topics.

    It sends one request at a time. With several, Kafka may refuse the first one, because a new partition is not ready
    yet, and take the second. When the first comes again, Kafka takes it for a duplicate: it is acknowledged, and lost.

    It does not log lost connections: it may rest for hours without being polled, and lines would wait in memory.
    """
    return Producer(
        client_config(settings)
        | {
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "compression.type": "zstd",
            "partitioner": PARTITIONER,
            "linger.ms": 5,
            "message.max.bytes": 1_000_000,
            "log_level": 2,
        }
        | more
    )


def consumer(settings: KafkaSettings, group: str, **more: Any) -> Consumer:
    """A consumer that starts at the earliest message and commits only when told to. It sees no message of a transaction
    that is open or was aborted. One that is not polled all the time needs a `log_level` of 2 or less."""
    return Consumer(
        client_config(settings)
        | ({} if "log_level" in more else _LOGGED)
        | {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            # Bounds of memory. Fetches are bounded by bytes as Kafka stores them: small messages that compress well
            # take fifty times as much. Nothing more is fetched while this many messages wait here.
            "fetch.message.max.bytes": 250_000,  # of a partition; a larger message comes alone
            "fetch.max.bytes": 2_000_000,
            "queued.max.messages.kbytes": 32_768,
            "queued.min.messages": 1000,
            "fetch.queue.backoff.ms": 50,  # until there may be room: librdkafka waits a second, and consumers with it
        }
        | more
    )


@contextlib.contextmanager
def admin_client(settings: KafkaSettings) -> Iterator[AdminClient]:
    """A client for questions about topics, and for changing them. What it has to log is logged at the end."""
    client = AdminClient(client_config(settings) | _LOGGED)
    try:
        yield client
    finally:
        client.poll(0)


def committed_positions(reader: Consumer, partitions: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """Returns the positions that the reader's group has committed; a negative offset: none. Raises KafkaException, also
    for an error of one partition only, which would look as if nothing were committed there."""
    positions = reader.committed(partitions, timeout=timeout_s) if partitions else []
    for position in positions:
        if position.error is not None:
            raise KafkaException(position.error)
    return positions


def commit(reader: Consumer, places: list[TopicPartition], timeout_s: float = _COMMIT_S) -> list[TopicPartition]:
    """Commits, and returns Kafka's answer, with an error for each partition that it refused. Raises KafkaException,
    also where no answer comes in time; the commit may still be done then.

    librdkafka puts a commit off while the group has no coordinator, and has been seen never to take it up again
    (2.16.0, after restarts of Kafka): whoever waits for its answer waits for good, so that is a thread of its own.
    """
    answer: Future[list[TopicPartition]] = Future()

    def wait() -> None:
        try:
            answer.set_result(reader.commit(offsets=places, asynchronous=False) or [])
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=wait, name="commit", daemon=True).start()
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        no_answer = KafkaError(KafkaError._TIMED_OUT, f"no answer to a commit for {timeout_s:.0f} s")
        raise KafkaException(no_answer) from None


def first_messages(reader: Consumer, positions: list[TopicPartition]) -> Iterator[Message]:
    """Yields the first message at or after each position; where there is none, a message whose error is that the log
    ends. The reader must be one that notices that (`enable.partition.eof`). Raises KafkaException."""
    reader.assign(positions)
    waiting = {(position.topic, position.partition) for position in positions}
    deadline = time.monotonic() + _ANSWER_S
    while waiting:
        message = reader.poll(1.0)
        if message is None:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer for {_ANSWER_S:.0f} s"))
            continue
        if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        partition = (message.topic() or "", message.partition() or 0)
        if partition in waiting:
            waiting.remove(partition)
            yield message


def unread(settings: KafkaSettings, positions: list[TopicPartition]) -> list[TopicPartition]:
    """Returns the positions at or after which there is a message. Raises KafkaException.

    Offsets do not say that: the end of a transaction has an offset, too, and nobody reads it.
    """
    of_partition = {(position.topic, position.partition): position for position in positions}
    with contextlib.closing(consumer(settings, UNREAD_GROUP, **{"enable.partition.eof": True})) as reader:
        return [
            of_partition[message.topic() or "", message.partition() or 0]
            for message in first_messages(reader, positions)
            if message.error() is None
        ]


def is_in_process(client: Consumer | Producer | AdminClient, timeout_s: float) -> bool:
    """Whether the broker is the in-process one, which has no configuration and no offsets by time. Raises
    KafkaException."""
    return str(client.list_topics(timeout=timeout_s).cluster_id).startswith("mockCluster")
