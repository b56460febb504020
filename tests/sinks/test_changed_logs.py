"""Sinks whose topics are made anew, lose their last messages, or are put back to an old copy: nothing is skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message
from prometheus_client import REGISTRY

from icestream.commands.topics import create
from icestream.kafka import readiness
from icestream.kafka.clients import admin_client
from icestream.settings import KafkaSettings
from icestream.topics import DEAD_LETTERS, SAMPLES
from sinks import service
from sinks.runner import runner
from sinks.settings import SinkSettings
from standalone.supervisor.in_process_broker import PARTITIONS
from standalone.supervisor.local_kafka import LocalKafka
from tests.changed_kafka import Changing, copy, lose_tail, make_anew, make_anew_at_once, put_back
from tests.pipeline.reading import messages
from tests.sinks.running import Recording, committed, running, send
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks look every second whether logs have changed, not every 20."""
    monkeypatch.setattr(readiness, "LOOK_S", 0.5)
    monkeypatch.setattr(runner, "_CHECK_LOGS_S", 1.0)


def values(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def written(sink: Recording) -> list[bytes]:
    return [message for one in sink.written for message in one.messages]


def changed() -> float:
    labels = {"sink": "recording", "topic": SAMPLES}
    return REGISTRY.get_sample_value("icestream_sinks_logs_changed_total", labels) or 0.0


def is_committed(settings: KafkaSettings, count: int) -> bool:
    try:
        return committed(settings, SAMPLES, group="recording") == count
    except KafkaException:  # Kafka has just started
        return False


@contextmanager
def stored(settings: KafkaSettings, count: int, sink: Recording | None = None) -> Iterator[Recording]:
    """Runs a sink until it has committed `count` messages."""
    sink = sink or Recording()
    with running(settings, sink):
        wait_until(lambda: is_committed(settings, count), lambda: written(sink))
        yield sink


# What the log has after the change: fewer messages than it had, as many, and more.
@pytest.mark.parametrize("more", [*(pytest.param(more, marks=pytest.mark.soak) for more in (2, 5)), 9])
@pytest.mark.parametrize("runs", [pytest.param(False, marks=pytest.mark.soak), True])
def test_messages_after_a_lost_tail_are_all_read(changing_kafka: Changing, more: int, runs: bool) -> None:
    settings, before = changing_kafka.settings(), changed()
    send(settings, SAMPLES, *values("kept", 3))
    sink = Recording()

    def change() -> None:
        with changing_kafka.stopped() as data:
            lose_tail(data, SAMPLES, 0, 5)
        send(settings, SAMPLES, *values("new", more))

    with stored(settings, 3, sink):
        send(settings, SAMPLES, *values("lost", 5))
        wait_until(lambda: is_committed(settings, 8), lambda: written(sink))
        if runs:
            change()
            wait_until(lambda: set(values("new", more)) <= set(written(sink)), lambda: written(sink))
    if not runs:
        change()
        with running(settings, sink):
            wait_until(lambda: set(values("new", more)) <= set(written(sink)), lambda: written(sink))
    assert written(sink).count(b"kept 0") <= 2
    assert changed() > before


@pytest.mark.parametrize("runs", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_topic_made_anew_is_read_from_its_beginning(changing_kafka: Changing, runs: bool) -> None:
    settings = changing_kafka.settings()
    send(settings, SAMPLES, *values("old", 5))
    sink = Recording()

    def change() -> None:
        make_anew(settings, SAMPLES)
        send(settings, SAMPLES, *values("new", 9))

    with stored(settings, 5, sink):
        if runs:
            change()
            wait_until(lambda: set(values("new", 9)) <= set(written(sink)), lambda: written(sink))
    if not runs:
        change()
        with running(settings, sink):
            wait_until(lambda: set(values("new", 9)) <= set(written(sink)), lambda: written(sink))


def test_a_topic_made_anew_within_a_moment_is_read_from_its_beginning(apache_kafka: KafkaSettings) -> None:
    """No connection breaks, and the sink does not see that the topic is away."""
    sink = Recording()
    send(apache_kafka, SAMPLES, *values("old", 5))
    with stored(apache_kafka, 5, sink):
        make_anew_at_once(apache_kafka, SAMPLES)
        send(apache_kafka, SAMPLES, *values("new", 9))
        wait_until(lambda: set(values("new", 9)) <= set(written(sink)), lambda: written(sink))
    assert set(values("old", 5)) <= set(written(sink))


def test_a_sink_that_runs_reads_an_old_copy_of_kafka(
    changing_kafka: Changing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_LOOK_FOR_S", 5.0)
    settings, sink = changing_kafka.settings(), Recording()
    send(settings, SAMPLES, *values("kept", 3))
    with stored(settings, 3, sink):
        with changing_kafka.stopped() as data:
            copy(data, tmp_path / "copy")
        send(settings, SAMPLES, *values("lost", 5))
        wait_until(lambda: is_committed(settings, 8), lambda: written(sink))
        with changing_kafka.stopped() as data:
            put_back(data, tmp_path / "copy")
        send(settings, SAMPLES, *values("new", 9))
        wait_until(lambda: set(values("new", 9)) <= set(written(sink)), lambda: written(sink))


def test_a_sink_that_runs_gets_a_new_consumer_for_another_kafka_at_its_address(changing_kafka: Changing) -> None:
    """The old one may read nothing, and what it reads would bear the ID of the old cluster."""
    settings, sink = changing_kafka.settings(), Recording()
    send(settings, SAMPLES, *values("old", 5))
    with stored(settings, 5, sink):
        with changing_kafka.stopped() as data:
            shutil.rmtree(data / "log")
            LocalKafka(data, port=int(settings.kafka.split(":")[1]))  # makes an empty one
        create(settings, partitions=PARTITIONS, replication=1)
        with admin_client(settings) as admin:
            cluster = admin.list_topics(timeout=PATIENCE_S).cluster_id

        def is_read() -> bool:
            send(settings, SAMPLES, b"new")
            return sink.written[-1].cluster == cluster

        wait_until(is_read, lambda: sink.written[-1])


def test_a_restart_of_kafka_changes_nothing(changing_kafka: Changing) -> None:
    settings, sink, before = changing_kafka.settings(), Recording(), changed()
    send(settings, SAMPLES, *values("first", 5))
    with stored(settings, 5, sink):
        with changing_kafka.stopped():
            pass
        send(settings, SAMPLES, *values("second", 5))
        wait_until(lambda: len(written(sink)) == 10, lambda: written(sink))
    with running(settings, sink):
        send(settings, SAMPLES, *values("third", 5))
        wait_until(lambda: len(written(sink)) == 15, lambda: written(sink))
    assert changed() == before


def test_dead_letters_are_published_after_kafka_has_lost_the_end_of_their_log(changing_kafka: Changing) -> None:
    settings = changing_kafka.settings()
    reject = service._reject(SinkSettings(kafka=settings.kafka), "recording")

    def reject_all(letters: list[bytes]) -> None:
        for letter in letters:
            reject([(Message(SAMPLES, 0, key=b"host-1", offset=0, value=letter), ValueError("bad"))])

    reject_all(values("before", 3))
    with changing_kafka.stopped() as data:
        for partition in range(4):  # they are in one of them
            lose_tail(data, DEAD_LETTERS, partition, 1)
    reject_all(values("after", 3))
    assert [m.value() for m in messages(settings, DEAD_LETTERS)] == [*values("before", 1), *values("after", 3)]


def test_a_sink_commits_where_it_goes_on_though_no_message_comes(changing_kafka: Changing) -> None:
    """Else the group seems to have read what comes next, until the sink has."""
    settings = changing_kafka.settings()
    send(settings, SAMPLES, *values("lost", 5))
    with stored(settings, 5):
        with changing_kafka.stopped() as data:
            lose_tail(data, SAMPLES, 0, 0)
        wait_until(lambda: is_committed(settings, 0))
