"""Topics of an OpenTelemetry Collector's Kafka exporter, over the in-process broker."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gateway.intake import Intake
from gateway.otlp_topic import OtlpTopic, profiles_topic, spans_topic
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.kafka import clients, dead_letters
from icestream.messages.activity import decode_activity
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings, SettingError
from icestream.topics import ACTIVITY, DEAD_LETTERS, GATEWAY_SPANS_GROUP, RAW
from tests.gateway.otlp import Otlp, host
from tests.gateway.readers.test_otlp import OLDER
from tests.gateway.spans import CHILD, ROOT, span, traces
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S, wait_until

SPANS, PROFILES = "otlp_spans", "otlp_profiles"


class Topic:
    """What is sent to a topic, and what reads it."""

    def __init__(self, settings: GatewaySettings, name: str, read: Callable[[GatewaySettings, Intake], OtlpTopic]):
        self.settings = settings
        self._name = name
        self._read = read
        self._producer = clients.producer(settings)
        self._publisher = BatchPublisher(settings)
        self._intake = Intake(settings, self._publisher)

    def send(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(self._name, value)
        assert self._producer.flush(PATIENCE_S) == 0

    def send_with(self, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._producer.produce(self._name, value, headers=headers)
        assert self._producer.flush(PATIENCE_S) == 0

    def read_until(self, condition: Callable[[], object]) -> None:
        """Reads on from where the last reading was committed."""
        reader = self._read(self.settings, self._intake)
        wait_until(condition)
        reader.close()

    def letters(self) -> list[bytes]:
        found = [(dict(m.headers() or ()), m.value() or b"") for m in messages(self.settings, DEAD_LETTERS)]
        return [value for headers, value in found if headers["icestream.topic"] == self._name.encode()]

    def close(self) -> None:
        self._publisher.close()
        self._producer.close()


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    clients = in_process_broker.kafka
    return GatewaySettings(
        kafka=clients, gateway_ack_s=PATIENCE_S, gateway_spans_topic=SPANS, gateway_profiles_topic=PROFILES
    )


def test_spans_of_a_topic_are_taken_once_and_what_is_none_is_a_dead_letter(settings: GatewaySettings) -> None:
    topic = Topic(settings, SPANS, spans_topic)

    def taken() -> list[str]:
        batches = [decode_activity(message.value()) for message in messages(settings, ACTIVITY)]
        return [name for batch in batches if batch.host_id == "by-topic" for name in batch.spans.name.texts()]

    def of(name: str, span_id: bytes) -> bytes:
        return traces(span(time.time_ns(), span_id, name=name), host_id="by-topic").SerializeToString()

    topic.send(of("first", ROOT), b"\xff\xff", of("second", CHILD))
    # Messages without a key go to any partition: the one in the middle may be read last.
    topic.read_until(lambda: sorted(taken()) == ["first", "second"] and topic.letters())
    topic.send(of("third", ROOT))
    topic.read_until(lambda: "third" in taken())
    topic.close()
    assert sorted(taken()) == ["first", "second", "third"]
    assert topic.letters() == [b"\xff\xff"]


def test_a_dead_letter_that_kafka_does_not_take_at_once_is_sent_again(
    settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, send_all = Topic(settings, SPANS, spans_topic), dead_letters.send_all
    failures = [1, 2]

    def fails_twice(*arguments: Any) -> None:
        if failures:
            failures.pop()
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        send_all(*arguments)

    monkeypatch.setattr(dead_letters, "send_all", fails_twice)
    topic.send(b"\xff\xff")
    topic.read_until(topic.letters)
    topic.close()
    assert topic.letters() == [b"\xff\xff"]


def test_a_commit_that_fails_is_repeated_without_another_message(
    settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT]

    class Failing(Consumer):
        def commit(self, **arguments: Any) -> Any:
            if failures:
                raise KafkaException(KafkaError(failures.pop()))
            return super().commit(**arguments)

    monkeypatch.setattr(clients, "Consumer", Failing)
    topic = Topic(settings, SPANS, spans_topic)
    topic.send(b"\xff\xff")
    reader = clients.consumer(settings, GATEWAY_SPANS_GROUP)
    partitions = [TopicPartition(SPANS, number) for number in range(4)]
    topic.read_until(lambda: max(p.offset for p in reader.committed(partitions, timeout=PATIENCE_S)) == 1)
    topic.close()
    reader.close()


def profiles(host_id: str, unix_nano: int | None = None) -> Otlp:
    """Profiles without timestamps of samples; None: they do not say when they were taken."""
    made = host()
    del made.profile.samples[2], made.profile.samples[0]
    made.profile.time_unix_nano = unix_nano or 0
    for attribute in made.resource.attributes:
        if attribute.key == "host.id":
            attribute.value.string_value = host_id
    return made


def test_profiles_of_a_topic_are_taken_once_and_what_is_none_is_a_dead_letter(settings: GatewaySettings) -> None:
    topic = Topic(settings, PROFILES, profiles_topic)

    def taken() -> list[str]:
        return sorted(decode_raw(message.value()).host_id for message in messages(settings, RAW))

    half_bad = profiles("half", time.time_ns())
    half_bad.scope.profiles.add().CopyFrom(half_bad.profile)
    half_bad.profile.samples[0].stack_index = 99
    half = half_bad.data.SerializeToString()
    good = profiles("good", time.time_ns()).data.SerializeToString()
    topic.send(good, b"\xff\xff", OLDER["1.9"], half, good)
    topic.read_until(lambda: len(taken()) == len(topic.letters()) == 3)
    topic.send(profiles("last", time.time_ns()).data.SerializeToString())
    topic.read_until(lambda: "last" in taken())
    topic.close()
    assert taken() == ["good", "good", "half", "last"]
    ids = {decode_raw(message.value()).id.collector for message in messages(settings, RAW)}
    assert len(ids) == 3  # what came twice is one batch
    assert sorted(topic.letters()) == sorted([b"\xff\xff", OLDER["1.9"], half])


def test_a_message_that_is_read_again_counts_once_though_its_profiles_have_no_time(settings: GatewaySettings) -> None:
    made = profiles("timeless")
    made.scope.profiles.add().CopyFrom(made.profile)
    topic = Topic(settings, PROFILES, profiles_topic)
    topic.send(made.data.SerializeToString())

    def ids() -> list[str]:
        return [decode_raw(message.value()).id.collector for message in messages(settings, RAW)]

    def not_committed(self: OtlpTopic) -> None:
        """As if the gateway were killed before it commits."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OtlpTopic, "_commit", not_committed)
        topic.read_until(lambda: len(ids()) == 2)
    topic.read_until(lambda: len(ids()) == 4)
    topic.close()
    assert len(set(ids())) == 2


def test_profiles_of_another_revision_are_dead_letters(settings: GatewaySettings) -> None:
    topic = Topic(settings, PROFILES, profiles_topic)
    sent = {name: profiles(name, time.time_ns()).data.SerializeToString() for name in ("1", "2", "01", "none")}
    for revision in ("1", "2", "01"):
        topic.send_with(sent[revision], [("OTLP-Profiles-Development-Version", revision.encode())])
    topic.send(sent["none"])

    def taken() -> set[str]:
        return {decode_raw(message.value()).host_id for message in messages(settings, RAW)}

    topic.read_until(lambda: taken() == {"1", "none"} and len(topic.letters()) == 2)
    topic.close()
    assert sorted(topic.letters()) == sorted([sent["2"], sent["01"]])


def test_a_topic_of_a_revision_that_is_not_read_is_said_at_the_start() -> None:
    with pytest.raises(SettingError, match="gateway_profiles_revision: expected 1, got 2"):
        GatewaySettings(gateway_profiles_revision=2)
