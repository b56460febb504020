"""The loop of a sink on a broker: what it reads, writes again, gives up on, and survives."""

import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import REGISTRY

from icestream.clickhouse.client import Clients
from icestream.kafka import clients as kafka
from icestream.kafka import readiness
from icestream.kafka.clients import consumer
from icestream.messages.plausible import TimeLimits
from icestream.settings import KafkaSettings
from icestream.times import DAY_NS
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks import service
from sinks.archive import archive
from sinks.archive.archive import ArchiveSink
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner import pending, runner
from sinks.runner.pending import MESSAGE_BYTES
from sinks.runner.ranges import MessageRange
from sinks.service import start
from sinks.settings import SinkSettings
from standalone.supervisor.in_process_broker import InProcessBroker
from tests.changed_kafka import add_partitions
from tests.sinks.messages import activity_batch, sample_batch, stack_batch
from tests.sinks.running import Recording, committed, number, running, send
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that failed is tried again, and asked, within a moment."""
    monkeypatch.setattr(pending, "_BACK_OFF_S", (0.2, 0.5))
    monkeypatch.setattr(runner, "_RETRY_S", 0.2)


def test_every_topic_is_stored_and_committed_and_bad_messages_are_rejected(
    broker: KafkaSettings, clients: Clients
) -> None:
    rejected: list[Message] = []
    send(broker, STACKS, stack_batch(), b"\xff")
    send(broker, ACTIVITY, activity_batch(1))
    with running(broker, ClickHouseSink(clients), rejected):
        for sequence in range(1, 6):
            send(broker, SAMPLES, sample_batch(sequence), b"garbage", partition=sequence % 2)
        wait_until(lambda: number(clients, "SELECT count() FROM samples") == 25)
        wait_until(lambda: len(rejected) == 6)
        wait_until(lambda: (committed(broker, SAMPLES, 0), committed(broker, SAMPLES, 1)) == (4, 6))
        wait_until(lambda: number(clients, "SELECT count() FROM nodes") == 2)
        wait_until(lambda: number(clients, "SELECT count() FROM activity") == 3)
    assert {(m.topic(), m.value()) for m in rejected} == {(STACKS, b"\xff"), (SAMPLES, b"garbage")}


def test_times_far_from_kafkas_timestamp_are_rejected_and_archived_by_the_timestamp(
    in_process_broker: KafkaSettings, clients: Clients, tmp_path: Path
) -> None:
    rejected: list[Message] = []
    limits = TimeLimits(late_ns=30 * DAY_NS, early_ns=DAY_NS)
    send(in_process_broker, ACTIVITY, activity_batch(1))
    send(in_process_broker, SAMPLES, sample_batch(1))
    today = time.time_ns() // DAY_NS * DAY_NS
    with running(in_process_broker, ClickHouseSink(clients, limits), rejected):
        wait_until(lambda: len(rejected) == 2)
    assert {m.topic() for m in rejected} == {SAMPLES, ACTIVITY}
    with running(in_process_broker, ArchiveSink(str(tmp_path), limits=limits)):
        wait_until(lambda: list(archive.read(str(tmp_path), ACTIVITY, today - DAY_NS, today + DAY_NS)))


def test_a_flood_of_bad_messages_is_counted_while_good_ones_of_all_topics_are_stored(
    in_process_broker: KafkaSettings, clients: Clients
) -> None:
    counted = {"sink": "clickhouse", "topic": SAMPLES, "reason": "SampleBatch"}
    before = REGISTRY.get_sample_value("icestream_sinks_dead_letters_total", counted) or 0.0
    for sequence in (1, 2):
        send(in_process_broker, SAMPLES, *[b"garbage"] * 1000, sample_batch(sequence))
    send(in_process_broker, ACTIVITY, activity_batch(1))
    settings = SinkSettings(kafka=in_process_broker.kafka, max_late_days=36_500, dead_letters_per_minute=3)
    stop = threading.Event()
    sinks = start(settings, stop, clients, ["clickhouse"])
    try:
        wait_until(lambda: number(clients, "SELECT count() FROM samples") == 10)
        wait_until(lambda: number(clients, "SELECT count() FROM activity") == 3)
        wait_until(lambda: committed(in_process_broker, SAMPLES) == 2002)
        wait_until(lambda: number(clients, "SELECT count() FROM dead_letters") >= 3)
    finally:
        stop.set()
        sinks.join(PATIENCE_S)
    assert (REGISTRY.get_sample_value("icestream_sinks_dead_letters_total", counted) or 0.0) - before == 2000
    assert number(clients, "SELECT count() FROM dead_letters") < 100


def test_a_store_that_is_away_loses_nothing_and_is_told_by_the_metrics(
    in_process_broker: KafkaSettings, clients: Clients
) -> None:
    away = threading.Event()
    away.set()

    class Sometimes(ClickHouseSink):
        def _insert(self, table: str, *args: Any) -> None:
            if away.is_set() and table == "batches":
                raise ConnectionError("connection refused")
            super()._insert(table, *args)

    def waiting() -> float | None:
        return REGISTRY.get_sample_value("icestream_sinks_store_unavailable", {"sink": "clickhouse"})

    send(in_process_broker, SAMPLES, sample_batch(1), sample_batch(2))
    with running(in_process_broker, Sometimes(clients)) as started:
        wait_until(lambda: waiting() == 1.0)
        assert "connection refused" in (started.problem or "")
        send(in_process_broker, SAMPLES, sample_batch(3))
        away.clear()
        wait_until(lambda: number(clients, "SELECT count() FROM batches") == 3)
        wait_until(lambda: waiting() == 0.0)
        wait_until(lambda: started.problem is None, lambda: started.problem)
    assert number(clients, "SELECT count() FROM samples") == 15


def test_a_range_in_flight_is_written_again_as_it_was_by_the_next_owner(
    broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broker.kafka_in_process:  # it lets no new owner in until the session of the earlier one could have ended
        sessions = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
        monkeypatch.setattr(runner, "consumer", partial(consumer, **sessions))
    send(broker, SAMPLES, b"1", b"2")
    first = Recording(fail=True)
    with running(broker, first):
        wait_until(lambda: len(first.written) >= 2)
    send(broker, SAMPLES, b"3", b"4")
    second = Recording()
    with running(broker, second):
        wait_until(lambda: sum(len(r.messages) for r in second.written) == 4)
    assert {r.name for r in first.written} == {second.written[0].name}
    assert [r.retried for r in first.written[:2]] == [False, True]
    assert list(second.written[0].messages) == [b"1", b"2"]
    assert second.written[0].retried
    assert not second.written[1].retried
    assert [m for r in second.written[1:] for m in r.messages] == [b"3", b"4"]


@pytest.mark.parametrize("keeps_ranges", [True, False])
def test_a_commit_that_fails_after_a_write_is_repeated_without_another_message(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, keeps_ranges: bool
) -> None:
    failures = iter([KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT])

    class Failing(Consumer):
        """As with a broker that has no time: it takes the offsets of a range, but not at once that it is stored."""

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> Any:  # type: ignore[override]
            if "inflight" not in (offsets[0].metadata or "") and (code := next(failures, None)) is not None:
                raise KafkaException(KafkaError(code))
            return super().commit(offsets=offsets, asynchronous=asynchronous)

    monkeypatch.setattr(kafka, "Consumer", Failing)
    sink = Recording()
    sink.keeps_ranges = keeps_ranges
    send(in_process_broker, SAMPLES, b"1", b"2")
    with running(in_process_broker, sink):
        wait_until(lambda: committed(in_process_broker, SAMPLES, group="recording") == 2)
    assert [message for one in sink.written for message in one.messages] == [b"1", b"2"]


def test_partitions_that_are_added_are_read_long_before_five_minutes_are_over(apache_kafka: KafkaSettings) -> None:
    sink = Recording()
    send(apache_kafka, SAMPLES, b"1")
    with running(apache_kafka, sink):
        wait_until(lambda: sink.written)
        started = time.monotonic()
        add_partitions(apache_kafka, 6, SAMPLES)
        send(apache_kafka, SAMPLES, b"2", partition=5)
        wait_until(lambda: [message for one in sink.written for message in one.messages] == [b"1", b"2"])
        assert time.monotonic() < started + 150


class Panic(BaseException):
    """As pyo3 raises it when a library in Rust panics."""


class Refusing(Recording):
    """Writes ranges of all partitions at once, and does not write one of them."""

    def __init__(self, refused: bytes = b"") -> None:
        super().__init__(writes_together=True)
        self.refused = refused
        self.messages: set[bytes] = set()

    def write(self, *ranges: MessageRange[bytes]) -> None:
        super().write(*ranges)
        messages = {message for message_range in ranges for message in message_range.messages}
        if self.refused in messages:
            raise Panic("called `Option::unwrap()` on a `None` value")
        self.messages |= messages


def test_ranges_of_all_partitions_are_written_at_once_when_one_is_due(in_process_broker: KafkaSettings) -> None:
    sink = Refusing()
    for partition in range(4):
        send(in_process_broker, SAMPLES, str(partition).encode(), partition=partition)
    with running(in_process_broker, sink, flush_s=PATIENCE_S) as started:
        read = started._assignment.pending
        wait_until(lambda: sum(len(one.messages) for one in list(read.values())) == 4)
        read[SAMPLES, 0].since -= PATIENCE_S
        wait_until(lambda: len(sink.messages) == 4)
        assert sink.at_once == [4]
        wait_until(lambda: [committed(in_process_broker, SAMPLES, p, "recording") for p in range(4)] == [1] * 4)


def _size(value: bytes) -> int:
    return MESSAGE_BYTES + len(value)


# It commits thirty times, which Apache Kafka takes long for.
@pytest.mark.parametrize(
    "broker",
    ["in_process_broker", pytest.param("apache_kafka", marks=[pytest.mark.kafka, pytest.mark.soak])],
    indirect=True,
)
def test_a_backlog_is_written_in_ranges_of_so_many_bytes(
    broker: KafkaSettings, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [sample_batch(sequence, rows=1 + sequence % 40) for sequence in range(1, 121)]
    limit, write = 4 * max(map(_size, values)), ClickHouseSink.write
    written: list[list[bytes]] = []

    def noting(sink: ClickHouseSink, *ranges: MessageRange[Any]) -> None:
        written.extend(values[one.offsets.first : one.offsets.last + 1] for one in ranges)
        write(sink, *ranges)

    monkeypatch.setattr(service, "_FLUSH_BYTES", limit)
    monkeypatch.setattr(ClickHouseSink, "write", noting)
    send(broker, SAMPLES, *values)
    stop = threading.Event()
    settings = SinkSettings(kafka=broker.kafka, max_late_days=36_500, flush_s=PATIENCE_S)
    sinks = start(settings, stop, clients, ["clickhouse"])
    read = sinks.runners[0]._assignment
    wait_until(lambda: read.read_to().get((SAMPLES, 0)) == len(values))
    stop.set()
    sinks.join(PATIENCE_S)
    assert [value for of_range in written for value in of_range] == values
    for of_range in written:
        size = sum(map(_size, of_range))
        assert size - _size(of_range[-1]) < limit
        assert size >= limit or of_range is written[-1]
    assert committed(broker, SAMPLES) == len(values)
    assert number(clients, "SELECT count() FROM samples") == sum(1 + sequence % 40 for sequence in range(1, 121))
    assert number(clients, "SELECT uniqExact(sequence) FROM batches") == len(values)


def test_ranges_of_several_partitions_are_written_at_once_up_to_so_many_bytes(in_process_broker: KafkaSettings) -> None:
    sink = Recording(writes_together=True)
    sizes = [MESSAGE_BYTES, MESSAGE_BYTES, MESSAGE_BYTES, 2 * MESSAGE_BYTES]
    values = [bytes([partition]) * size for partition, size in enumerate(sizes) for _ in range(10)]
    for value in values:
        send(in_process_broker, SAMPLES, value, partition=value[0])
    with running(in_process_broker, sink, flush_s=PATIENCE_S, flush_bytes=41 * MESSAGE_BYTES) as started:
        wait_until(lambda: list(started._assignment.read_to().values()).count(10) == 4)
        assert sink.written == []  # no partition has so many
    assert sink.at_once == [2, 1, 1]
    assert [value for one in sink.written for value in one.messages] == values


def test_a_range_that_the_store_refuses_by_a_panic_holds_up_no_other(in_process_broker: KafkaSettings) -> None:
    sink = Refusing(refused=b"2")
    for partition in range(4):
        send(in_process_broker, SAMPLES, str(partition).encode(), partition=partition)
    with running(in_process_broker, sink) as started:
        wait_until(lambda: sink.messages == {b"0", b"1", b"3"}, lambda: sink.messages)
        for partition in (0, 1, 3):
            send(in_process_broker, SAMPLES, f"more {partition}".encode(), partition=partition)
        wait_until(lambda: len(sink.messages) == 6, lambda: sink.messages)
        wait_until(lambda: "unwrap" in (started.problem or ""), lambda: started.problem)  # not while others are stored
        sink.refused = b""
        wait_until(lambda: b"2" in sink.messages)
        wait_until(lambda: started.problem is None, lambda: started.problem)


def test_a_group_with_two_members_writes_every_message_once(apache_kafka: KafkaSettings) -> None:
    one, two = Recording(), Recording()
    sent: list[int] = []

    def send_to_all() -> int:
        """Sends a message to each partition; returns how many were sent so far."""
        for partition in range(4):
            sent.append(len(sent))
            send(apache_kafka, SAMPLES, str(sent[-1]).encode(), partition=partition)
        return len(sent)

    def written() -> list[int]:
        ranges = {r.name: list(r.messages) for r in one.written + two.written}
        return [int(message) for messages in ranges.values() for message in messages]

    with running(apache_kafka, one):
        send_to_all()
        with running(apache_kafka, two):
            wait_until(lambda: send_to_all() and two.written)
        send_to_all()
        wait_until(lambda: len(set(written())) == len(sent))
    assert sorted(written()) == sent


@pytest.mark.slow
def test_the_reason_for_not_being_ready_names_kafka_and_the_store_also_when_nothing_is_to_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "_CHECK_S", 0.1)
    monkeypatch.setattr(readiness, "LOOK_S", 0.1)
    monkeypatch.setattr(readiness, "_TIMEOUT_S", 0.5)
    broker = InProcessBroker()
    settings, sink = broker.settings(), Recording()
    with running(settings, sink) as started:
        wait_until(lambda: started.problem is None, lambda: started.problem)
        sink.away = True
        wait_until(lambda: started.problem == "the store cannot be reached: connection refused")
        sink.away = False
        wait_until(lambda: started.problem is None, lambda: started.problem)
        broker.close()
        away = f"Kafka at {settings.kafka} cannot be reached: "
        wait_until(lambda: (started.problem or "").startswith(away), lambda: started.problem)


def test_a_rebalance_while_the_store_is_away_leaves_no_partition_paused(apache_kafka: KafkaSettings) -> None:
    broker = apache_kafka
    one, two = Recording(fail=True), Recording(fail=True)

    def stored(sink: Recording) -> set[bytes]:
        return {m for r in sink.written for m in r.messages}

    with running(broker, one):
        for i in range(4):
            send(broker, SAMPLES, str(i).encode(), partition=i)
        wait_until(lambda: one.written)
        with running(broker, two):
            wait_until(lambda: two.written)  # a partition was taken from one, and given to two
            attempts = len(one.written)
            wait_until(lambda: len(one.written) > attempts)
            one.fail = two.fail = False
            for i in range(4, 8):
                send(broker, SAMPLES, str(i).encode(), partition=i % 4)
            wait_until(lambda: len(stored(one) | stored(two)) == 8, lambda: stored(one) | stored(two))
        for i in range(8, 12):
            send(broker, SAMPLES, str(i).encode(), partition=i % 4)
        wait_until(lambda: len(stored(one) | stored(two)) == 12, lambda: stored(one) | stored(two))


CHILD = """
import os, signal, sys, threading
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from icestream.clickhouse.client import Clients
from icestream.settings import KafkaSettings
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.migrate import migrate
from functools import partial
from sinks.runner import runner
from sinks.runner.runner import Runner

# The next child waits until the session of the one that was killed has ended.
runner.consumer = partial(runner.consumer, **{"session.timeout.ms": 2000, "heartbeat.interval.ms": 300})
dsn, kafka, deadly, when = sys.argv[1:]
inserts = 0

class Mortal(ClickHouseSink):
    def _insert(self, *args):
        global inserts
        inserts += 1
        if inserts == int(deadly) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._insert(*args)
        if inserts == int(deadly):
            os.kill(os.getpid(), signal.SIGKILL)

clients = Clients(dsn)
migrate(clients.get())
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
Runner(Mortal(clients), KafkaSettings(kafka=kafka), lambda m, e: None, stop, flush_s=0.2).run()
print(clients.get().query("SELECT (SELECT count() FROM samples), (SELECT count() FROM trace_samples),"
    " (SELECT count() FROM activity), (SELECT uniqExact(sequence) FROM batches WHERE kind = 'samples'),"
    " (SELECT count() FROM batches WHERE kind = 'samples')").result_rows[0])
"""


# At which insert a sink is killed, before or after it is done.
@pytest.mark.parametrize(
    "kills",
    [
        [("2", "after"), ("7", "before")],
        pytest.param([("2", "before"), ("2", "after"), ("5", "after"), ("7", "before")], marks=pytest.mark.soak),
    ],
    ids=len,
)
def test_kill_9_between_any_two_inserts_neither_loses_nor_doubles(
    in_process_broker: KafkaSettings, tmp_path: Path, kills: list[tuple[str, str]]
) -> None:
    arguments = [sys.executable, "-c", CHILD, f"chdb://{tmp_path}/chdb", in_process_broker.kafka]
    total = 0
    for kill in kills:
        for partition in range(2):
            send(in_process_broker, SAMPLES, sample_batch(total + 1), sample_batch(total + 2), partition=partition)
            total += 2
        send(in_process_broker, ACTIVITY, *map(activity_batch, range(total - 3, total + 1)))
        child = subprocess.Popen([*arguments, *kill], stdin=subprocess.PIPE)
        assert child.wait(PATIENCE_S) == -9
    last = subprocess.Popen([*arguments, "0", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: committed(in_process_broker, SAMPLES, 0) + committed(in_process_broker, SAMPLES, 1) == total)
    wait_until(lambda: committed(in_process_broker, ACTIVITY, 0) == total)
    output, _ = last.communicate(timeout=PATIENCE_S)
    assert output.decode().strip() == str((5 * total, 2 * total, 3 * total, total, total))
