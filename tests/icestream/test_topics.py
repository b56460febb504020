"""`icestream topics`, on both brokers."""

import time

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from icestream import cli
from icestream.commands.topics import check, create
from icestream.kafka import client_config
from icestream.settings import KafkaSettings
from icestream.topics import RAW, TOPICS
from tests.conftest import delete_topics


def test_all_topics_fit_each_other_once_created(broker: KafkaSettings) -> None:
    assert check(broker) == []
    assert create(broker, 4, 1) == []
    there = AdminClient(client_config(broker)).list_topics(timeout=60).topics
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
    capsys.readouterr()
    assert cli.main(["topics", "list", "--kafka", apache_kafka.kafka]) == 0
    assert "icestream.raw                         2       7 days" in capsys.readouterr().out


@pytest.mark.kafka
def test_check_names_topics_whose_partitions_differ(apache_kafka: KafkaSettings) -> None:
    admin = AdminClient(client_config(apache_kafka))
    (grown,) = admin.create_partitions([NewPartitions(RAW, 6)]).values()
    grown.result()
    deadline = time.monotonic() + 120
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
