"""Configuration of confluent-kafka clients from the settings."""

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from icestream.settings import KafkaSettings

PARTITIONER = "murmur2_random"
"""What the Java client and aiokafka do; librdkafka's default would send a host's messages to another partition."""


def client_config(settings: KafkaSettings) -> dict[str, Any]:
    """The configuration that every librdkafka client of ours needs."""
    config = {
        "bootstrap.servers": settings.kafka,
        "security.protocol": settings.kafka_security_protocol,
        "sasl.mechanism": settings.kafka_sasl_mechanism,
        "sasl.username": settings.kafka_sasl_username,
        "sasl.password": settings.kafka_sasl_password,
        "ssl.ca.location": settings.kafka_ssl_ca,
        "ssl.certificate.location": settings.kafka_ssl_certificate,
        "ssl.key.location": settings.kafka_ssl_key,
        "client.id": "icestream",
    }
    return {key: value for key, value in config.items() if value}


def producer(settings: KafkaSettings, **more: Any) -> Producer:
    """An idempotent producer (acks=all) with zstd and the partitioner of all our topics."""
    return Producer(
        client_config(settings)
        | {
            "enable.idempotence": True,
            "compression.type": "zstd",
            "partitioner": PARTITIONER,
            "linger.ms": 5,
            "message.max.bytes": 1_000_000,
        }
        | more
    )


def consumer(settings: KafkaSettings, group: str, **more: Any) -> Consumer:
    """A consumer that starts at the earliest message and commits only when told to."""
    return Consumer(
        client_config(settings)
        | {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "fetch.message.max.bytes": 2_000_000,
            "queued.max.messages.kbytes": 32_768,
        }
        | more
    )


def is_in_process(client: Consumer | Producer | AdminClient, timeout_s: float) -> bool:
    """Whether the broker is the in-process one, which has no configuration and no offsets by time. Raises
    KafkaException."""
    return str(client.list_topics(timeout=timeout_s).cluster_id).startswith("mockCluster")
