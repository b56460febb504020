"""A topic of an OpenTelemetry Collector's Kafka exporter, over the in-process broker."""

import time

from gateway.intake import Intake
from gateway.publisher import Publisher
from gateway.settings import GatewaySettings
from gateway.spans_topic import SpansTopic
from icestream import kafka
from icestream.messages.activity import decode_activity
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, DEAD_LETTERS
from tests.gateway.spans import CHILD, ROOT, span, traces
from tests.pipeline.reading import messages
from tests.waiting import wait_until

TOPIC = "otlp_spans"


def test_spans_of_a_topic_are_taken_once_and_what_is_none_is_a_dead_letter(in_process_broker: KafkaSettings) -> None:
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_spans_topic=TOPIC)
    producer = kafka.producer(settings)

    def send(*values: bytes) -> None:
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(30) == 0

    def taken() -> list[str]:
        batches = [decode_activity(message.value()) for message in messages(settings, ACTIVITY)]
        return [name for batch in batches if batch.host_id == "by-topic" for name in batch.spans.name]

    def of(name: str, span_id: bytes) -> bytes:
        return traces(span(time.time_ns(), span_id, name=name), host_id="by-topic").SerializeToString()

    publisher = Publisher(settings)
    intake = Intake(settings, publisher)
    send(of("first", ROOT), b"\xff\xff", of("second", CHILD))
    reader = SpansTopic(settings, intake)
    wait_until(lambda: sorted(taken()) == ["first", "second"])
    reader.close()
    send(of("third", ROOT))
    reader = SpansTopic(settings, intake)  # goes on where the first one stopped
    wait_until(lambda: "third" in taken())
    reader.close()
    publisher.close()
    producer.close()
    assert sorted(taken()) == ["first", "second", "third"]
    letters = [dict(m.headers() or ()) for m in messages(settings, DEAD_LETTERS) if m.value() == b"\xff\xff"]
    assert [letter["icestream.topic"] for letter in letters] == [TOPIC.encode()]
