"""`icestream topics`, on both brokers."""

import time

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from icestream import cli
from icestream.commands.topics import check, create, weakness, weaknesses
from icestream.kafka import clients
from icestream.kafka.clients import client_config
from icestream.settings import KafkaSettings
from icestream.topics import RAW, TOPICS
from tests.conftest import delete_topics
from tests.waiting import PATIENCE_S, wait_until


def test_all_topics_fit_each_other_once_created(broker: KafkaSettings) -> None:
    assert check(broker) == weaknesses(broker) == []
    assert create(broker, 4, 1) == []
    there = AdminClient(client_config(broker)).list_topics(timeout=300).topics
    assert {topic.name for topic in TOPICS} <= set(there)
    assert {len(there[topic.name].partitions) for topic in TOPICS} == {4}


@pytest.mark.kafka
def test_create_makes_what_is_missing_with_its_retention(
    apache_kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    delete_topics(apache_kafka)
    assert len(check(apache_kafka)) == len(TOPICS)
    assert cli.main(["topics", "check", "--kafka", apache_kafka.kafka]) == 1
    assert "icestream.raw: missing; run `icestream topics create`" in capsys.readouterr().out
    assert cli.main(["topics", "create", "--kafka", apache_kafka.kafka, "--partitions", "2"]) == 0
    resource = ConfigResource(ResourceType.TOPIC, RAW)
    admin = AdminClient(client_config(apache_kafka))
    (answer,) = admin.describe_configs([resource]).values()
    assert answer.result()["retention.ms"].value == str(7 * 24 * 3600 * 1000)
    assert answer.result()["message.timestamp.type"].value == "LogAppendTime"
    capsys.readouterr()
    assert cli.main(["topics", "list", "--kafka", apache_kafka.kafka]) == 0
    assert "icestream.raw                         2        1    >= 1       7 days" in capsys.readouterr().out
    entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    (change,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, RAW, incremental_configs=[entry])]
    ).values()
    change.result()
    wait_until(lambda: check(apache_kafka) != [])
    assert cli.main(["topics", "check", "--kafka", apache_kafka.kafka]) == 1
    expected = "icestream.raw: Kafka takes no message: min.insync.replicas is 2, but replicas are 1\n"
    assert capsys.readouterr().out == expected


@pytest.mark.kafka
def test_timestamps_are_those_of_the_broker_and_a_topic_with_those_of_senders_is_named(
    apache_kafka: KafkaSettings,
) -> None:
    sender = clients.producer(apache_kafka)
    sender.produce(RAW, b"of a host whose clock is 20 years slow", partition=0, timestamp=1_160_000_000_000)
    assert sender.flush(PATIENCE_S) == 0
    reader = clients.consumer(apache_kafka, "test")
    reader.assign([TopicPartition(RAW, 0, 0)])
    message = reader.poll(PATIENCE_S)
    reader.close()
    assert message is not None
    kind, unix_milli = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert abs(unix_milli / 1000 - time.time()) < 600
    admin = AdminClient(client_config(apache_kafka))
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    (change,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, RAW, incremental_configs=[entry])]
    ).values()
    change.result()
    wait_until(lambda: check(apache_kafka) != [])
    (problem,) = check(apache_kafka)
    assert problem.startswith("icestream.raw: message.timestamp.type is CreateTime, so a host whose clock is wrong")
    assert problem.endswith("--entity-name icestream.raw --add-config message.timestamp.type=LogAppendTime")


@pytest.mark.parametrize(
    ("replicas", "min_insync", "brokers", "expected"),
    [
        (1, 1, 1, ""),  # nothing better can be had
        (3, 2, 3, ""),
        (2, 2, 2, ""),
        (1, 1, 3, "has 1 replica"),
        (3, 1, 3, "min.insync.replicas is 1"),
        (2, 1, 2, "min.insync.replicas is 1"),
    ],
)
def test_a_topic_that_loses_messages_with_one_broker_is_named(
    replicas: int, min_insync: int, brokers: int, expected: str
) -> None:
    found = weakness("t", replicas, min_insync, brokers)
    assert found.startswith(f"t: {expected}") if expected else found == ""


def test_more_replicas_in_sync_than_replicas_are_refused(
    in_process_broker: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "topics",
        "create",
        "--kafka",
        in_process_broker.kafka,
        "--replication",
        "1",
        "--min-insync-replicas",
        "2",
    ]
    assert cli.main(command) == 1
    assert "expected --min-insync-replicas up to --replication, 1, got 2" in capsys.readouterr().err


@pytest.mark.kafka
def test_check_names_topics_whose_partitions_differ(apache_kafka: KafkaSettings) -> None:
    admin = AdminClient(client_config(apache_kafka))
    (grown,) = admin.create_partitions([NewPartitions(RAW, 6)]).values()
    grown.result()
    deadline = time.monotonic() + PATIENCE_S
    while not (problems := check(apache_kafka)) and time.monotonic() < deadline:
        time.sleep(0.05)
    (problem,) = problems
    assert "icestream.raw has 6" in problem
    assert "icestream.activity has 4" in problem


def test_a_kafka_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icestream.commands.topics._TIMEOUT_S", 0.5)
    assert cli.main(["topics", "check", "--kafka", "127.0.0.1:1"]) == 1
    assert "icestream topics: Kafka at 127.0.0.1:1: " in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_of_partitions_is_at_least_one(number: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["topics", "create", "--partitions", number])
