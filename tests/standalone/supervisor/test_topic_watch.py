"""Topics that somebody deletes while `icestream up` runs."""

from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from icestream.commands.topics import existing
from icestream.kafka.clients import client_config
from icestream.settings import KafkaSettings
from icestream.topics import DEAD_LETTERS, FLAT, RAW
from standalone.supervisor import topic_watch
from standalone.supervisor.topic_watch import TopicWatch
from tests.changed_kafka import add_partitions
from tests.conftest import delete_topics
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def admin(apache_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> AdminClient:
    monkeypatch.setattr(topic_watch, "_LOOK_S", 0.1)
    return AdminClient(client_config(apache_kafka))


def shapes(admin: AdminClient) -> dict[str, object]:
    return {name: (topic.num_partitions, topic.config) for name, topic in existing(admin).items()}


def test_topics_come_back_with_the_partitions_and_the_configuration_that_they_had_last(
    apache_kafka: KafkaSettings, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    delete_topics(apache_kafka, [FLAT])  # it was not there before, so nobody misses it
    keep_a_minute = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, RAW, incremental_configs=[keep_a_minute])
    for change in admin.incremental_alter_configs([resource]).values():
        change.result(60)
    with closing(TopicWatch(apache_kafka)) as watch:
        add_partitions(apache_kafka, 6, DEAD_LETTERS)
        wait_until(lambda: watch._topics[DEAD_LETTERS].num_partitions == 6)
        before = shapes(admin)
        assert watch.problem is None
        delete_topics(apache_kafka, [RAW])
        delete_topics(apache_kafka, [DEAD_LETTERS])
        wait_until(lambda: shapes(admin) == before)
        wait_until(lambda: "were deleted" in (watch.problem or ""))
    assert RAW in caplog.text
    assert FLAT not in caplog.text


def test_what_was_deleted_is_told_for_a_while_and_once_in_the_log(
    apache_kafka: KafkaSettings, admin: AdminClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "_TOLD_S", 3.0)
    with closing(TopicWatch(apache_kafka)) as watch:
        delete_topics(apache_kafka, [RAW])
        wait_until(lambda: watch.problem is not None)
        wait_until(lambda: watch.problem is None)
    assert len([record for record in caplog.records if record.name == topic_watch.__name__]) == 1
