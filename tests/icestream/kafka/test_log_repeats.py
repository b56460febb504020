"""While a broker is away, Kafka's clients repeat themselves many times a second; the log says it once."""

import logging
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException

from icestream.kafka.clients import admin_client, consumer
from icestream.kafka.log_repeats import LimitRepeats
from icestream.settings import KafkaSettings
from tests.waiting import wait_until

NOBODY = KafkaSettings(kafka="127.0.0.1:1")
PERIOD_S = 2.0


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[float], list[str]]]:
    """Returns a function that begins to log with a period, and returns the lines that pass from then on."""
    caplog.set_level(logging.INFO)
    handler = logging.Handler()

    def begin(period_s: float) -> list[str]:
        lines: list[str] = []
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        handler.addFilter(LimitRepeats(period_s))
        logging.getLogger().addHandler(handler)
        return lines

    yield begin
    logging.getLogger().removeHandler(handler)


@pytest.mark.slow
def test_each_line_is_logged_once_and_then_how_often_lines_were_left_out(
    logged: Callable[[float], list[str]],
) -> None:
    lines = logged(PERIOD_S)
    aiokafka = logging.getLogger("aiokafka.client")
    for node in (1, 2, 1, 2, 2):
        aiokafka.error("Unable connect to node with id %s", node)
    assert lines == ["Unable connect to node with id 1", "Unable connect to node with id 2"]
    wait_until(lambda: len(lines) == 4)
    assert lines[2:] == [
        "Kafka's clients said the same 3 times more within 2 s, at last: Unable connect to node with id 2",
        "Kafka's clients have complained of nothing for 2 s",
    ]
    aiokafka.error("Unable connect to node with id %s", 1)
    assert lines[4:] == ["Unable connect to node with id 1"]


def test_a_consumer_logs_once_that_its_broker_is_away(
    logged: Callable[[float], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    lines = logged(30.0)
    reader = consumer(NOBODY, "nobody")
    reader.subscribe(["nothing"])
    ends = time.monotonic() + 2
    while time.monotonic() < ends:
        reader.poll(0.1)
    reader.close()
    assert ["Connection refused" in line for line in lines] == [True]
    assert capfd.readouterr().err == ""


def test_a_command_that_finds_no_kafka_logs_once_why(
    logged: Callable[[float], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    lines = logged(30.0)
    with pytest.raises(KafkaException), admin_client(NOBODY) as admin:
        admin.list_topics(timeout=1)
    assert ["Connection refused" in line for line in lines] == [True]
    assert capfd.readouterr().err == ""


def test_lines_of_others_are_never_left_out(logged: Callable[[float], list[str]]) -> None:
    lines = logged(30.0)
    for _ in range(3):
        logging.getLogger("icestream.kafka").warning("again")
    assert lines == ["again"] * 3
