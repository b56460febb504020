"""What a consumer with a backlog takes in memory."""

import random
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from icestream.kafka import clients
from icestream.settings import KafkaSettings

TOPIC, PARTITIONS, MESSAGES = "backlog", 16, 20_000
SLOW_S, LIMIT_MB = 6, 150


@pytest.mark.slow
@pytest.mark.kafka
def test_a_backlog_of_small_messages_that_compress_well_takes_little_memory(apache_kafka: KafkaSettings) -> None:
    """It took 800 MB in each sink."""
    admin = AdminClient(clients.client_config(apache_kafka))
    for made in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)]).values():
        made.result()
    draw = random.Random(1)
    producer = clients.producer(apache_kafka, **{"linger.ms": 100})
    for number in range(MESSAGES):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, draw.randbytes(40) + bytes(600), partition=partition)
        if number % 2000 == 1999:
            assert producer.flush(60) == 0
    call = [sys.executable, "-m", "tests.icestream.slow_consumer", apache_kafka.kafka, TOPIC, str(SLOW_S)]
    read, grown_mb = map(int, subprocess.run(call, check=True, capture_output=True, text=True).stdout.split())
    for deleted in admin.delete_topics([TOPIC]).values():
        deleted.result()
    assert read > 1000
    assert grown_mb < LIMIT_MB
