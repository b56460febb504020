"""The worker as a process, on the in-process broker."""

import itertools
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from icestream.commands.topics import create
from icestream.http.metrics import parse_metrics
from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, DEAD_LETTERS, RAW, SAMPLES, STACKS, STREAMS_GROUP, SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest
from standalone.supervisor.in_process_broker import PARTITIONS, InProcessBroker
from streams.app import QUEUED_BYTES
from tests.changed_kafka import add_partitions
from tests.conftest import delete_topics
from tests.data.handwritten import Raw, Sample
from tests.data.windows import Window, window
from tests.pipeline import reading
from tests.ports import free_port
from tests.slow_store import SlowStore
from tests.streams.outputs import rows, stacks
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.pipeline

START = 1_700_000_000 * 10**9
IN_PROCESS = pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)
"""For tests whose broker only has to take and give messages."""
KAFKA_IN_SOAK = pytest.mark.parametrize(
    "broker",
    ["in_process_broker", pytest.param("apache_kafka", marks=[pytest.mark.kafka, pytest.mark.soak])],
    indirect=True,
)
"""For tests beside which others show on an Apache Kafka that workers take over from each other."""


class Worker:
    """Starts and ends workers, sends to them, reads what they made."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self.settings = settings
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._logs = 0
        self.connect_again()

    def connect_again(self) -> None:
        """Kafka refuses what comes from a producer whose last messages it has lost."""
        self._sender = clients.producer(self.settings)

    def start(self, queued_bytes: int = QUEUED_BYTES, change: str = "pass", **environ: str) -> None:
        """`change`: statements that run before the worker."""
        self._logs += 1
        self.log = self._folder / f"{self._logs}.log"
        settings = {
            "ICESTREAM_SYMBOL_CACHE": str(self._folder), "ICESTREAM_METRICS_LISTEN": "127.0.0.1:0",
            "ICESTREAM_HOLD_BACK_FOR": "", "ICESTREAM_MAX_LATE_DAYS": "36500",
        }  # fmt: skip
        program = (
            "import sys, icestream.cli, streams.app;"
            f"streams.app.QUEUED_BYTES = {queued_bytes};{change}; sys.exit(icestream.cli.main(['streams']))"
        )
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program], stderr=log, cwd=Path(__file__).parents[2],
                env=os.environ | self.settings.environ() | settings | environ,
            )  # fmt: skip

    def send(self, topic: str, value: bytes, key: str = "host-0") -> None:
        self._sender.produce(topic, value, key=key)
        assert self._sender.flush(PATIENCE_S) == 0

    def publish(self, made: Window, host: int = 0) -> None:
        self.send(ACTIVITY, made.activity, f"host-{host}")
        self.send(RAW, made.raw, f"host-{host}")

    def messages(self, topic: str) -> list[tuple[bytes, dict[str, bytes]]]:
        """All of a topic so far: values, headers."""
        found = reading.messages(self.settings, topic)
        return [(message.value() or b"", dict(message.headers() or [])) for message in found]

    def wait(self, until: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        def happened() -> bool:
            if until():
                return True
            assert self.process.poll() is None, self.log.read_text()
            return False

        wait_until(happened, self.log.read_text, seconds)

    def values(self) -> tuple[int, int]:
        """The sum of all values so far, and of those with a trace; what a sink would keep, each batch once."""
        batches = [SampleBatch.FromString(value) for value, _ in self.messages(SAMPLES)]
        distinct = {(b.source.topic, b.source.batch.SerializeToString(), b.source.part): b for b in batches}
        found = rows([batch.SerializeToString() for batch in distinct.values()])
        return sum(found.values()), sum(value for row, value in found.items() if row[-1])


@pytest.fixture
def worker(broker: KafkaSettings, tmp_path: Path) -> Iterator[Worker]:
    one = Worker(broker, tmp_path)
    yield one
    if one.process.poll() is None:
        one.process.kill()
    one.process.wait()


def expected(made: list[Window]) -> tuple[int, int]:
    return sum(m.value for m in made), sum(sum(m.by_trace.values()) for m in made)


@KAFKA_IN_SOAK
def test_what_was_sent_comes_out_once_through_kills_and_a_stop(worker: Worker) -> None:
    made = []
    worker.start()
    for sequence in range(1, 4):
        for host in range(2):
            made.append(window(START, sequence, host))
            worker.publish(made[-1], host)
        bad = b"\x00" * [1000, 2000, 950_000][sequence - 1]
        worker.send(RAW, bad)
        worker.send(ACTIVITY, bad)
    worker.wait(lambda: worker.values() == expected(made))
    worker.process.kill()
    worker.process.wait()
    for sequence in range(4, 6):
        made.append(window(START, sequence))
        worker.publish(made[-1])
    worker.publish(made[0])  # sent again from a spool
    worker.start(change=f"import streams.worker; streams.worker.STOP_S = {PATIENCE_S}")  # or it may not have committed
    worker.wait(lambda: worker.values() == expected(made))
    # An interval that comes long after its samples.
    late = window(START, 6)
    worker.send(RAW, late.raw)
    made.append(late)
    worker.wait(lambda: worker.values()[0] == expected(made)[0])
    worker.send(ACTIVITY, late.activity)
    worker.wait(lambda: worker.values() == expected(made))

    letters = worker.messages(DEAD_LETTERS)
    assert {headers.get("icestream.size") for _, headers in letters} == {None, b"950000"}
    # What a kill cut off may come twice, with the same headers.
    places = ("icestream.topic", "icestream.partition", "icestream.offset")
    distinct = {tuple(headers[name] for name in places): len(value) for value, headers in letters}
    assert sorted(distinct.values()) == [1000, 1000, 2000, 2000, 900_000, 900_000]
    assert {headers["icestream.topic"].decode() for _, headers in letters} == {RAW, ACTIVITY}
    assert {headers["icestream.stage"].decode() for _, headers in letters} == {"streams decode"}
    asked = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(120) == 0
    assert time.monotonic() - asked < 60  # an idle machine needs one second; nothing here waits for minutes
    group = clients.consumer(worker.settings, STREAMS_GROUP)
    ends = [TopicPartition(topic, partition) for topic in (RAW, ACTIVITY) for partition in range(4)]
    for place in group.committed(ends, timeout=300):
        _, high = group.get_watermark_offsets(place, timeout=300)
        assert max(place.offset, 0) == high
    group.close()


@pytest.mark.kafka
def test_workers_share_the_partitions_and_take_over_from_each_other(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    workers = [Worker(apache_kafka, tmp_path / name) for name in ("a", "b", "c")]
    made: list[Window] = []

    def publish(sequences: range) -> None:
        for sequence in sequences:
            for host in range(6):
                made.append(window(START, sequence, host))
                workers[0].publish(made[-1], host)

    try:
        workers[0].start()
        publish(range(1, 4))
        for worker in workers[1:]:
            worker.start()
            publish(range(1 + len(made) // 6, 4 + len(made) // 6))
        for worker in workers:
            worker.wait(partial(has_partitions, worker))
        publish(range(1 + len(made) // 6, 4 + len(made) // 6))
        workers[0].process.kill()
        workers[0].process.wait()
        publish(range(1 + len(made) // 6, 4 + len(made) // 6))
        workers[1].process.send_signal(signal.SIGTERM)
        assert workers[1].process.wait(PATIENCE_S) == 0
        workers[2].wait(lambda: workers[2].values() == expected(made))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


DOES_NOT_GO_BACK = (
    "from streams.logs.group_consumer import _Thread;"
    "from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread;"
    "_Thread.seek_to_committed = AIOKafkaConsumerThread.seek_to_committed"
)
"""Faust then skips messages of a fetch during which a rebalance begins, of partitions of which nothing is committed."""


@pytest.mark.kafka
def test_workers_that_join_at_once_skip_nothing_of_a_backlog(apache_kafka: KafkaSettings, tmp_path: Path) -> None:
    """Even where Faust does, which is not in each run: then they read it again."""
    workers = [Worker(apache_kafka, tmp_path / name) for name in ("a", "b", "c")]
    made = [window(START, sequence, host, samples=10) for sequence in range(1, 61) for host in range(8)]
    sender = clients.producer(apache_kafka)
    for number, one in enumerate(made):
        sender.produce(ACTIVITY, one.activity, f"host-{number % 8}")
        sender.produce(RAW, one.raw, f"host-{number % 8}")
    assert sender.flush(PATIENCE_S) == 0
    try:
        for worker in workers:
            worker.start(change=DOES_NOT_GO_BACK)
        workers[0].wait(lambda: all(map(has_partitions, workers)))
        for host in range(8):  # what is skipped at the end of a log is noticed when the next message comes
            made.append(window(START, 61, host))
            workers[0].publish(made[-1], host)
        workers[0].wait(lambda: workers[0].values() == expected(made))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


@pytest.mark.kafka
def test_a_frozen_worker_that_wakes_up_publishes_nothing_any_more(apache_kafka: KafkaSettings, tmp_path: Path) -> None:
    frozen, other = (Worker(apache_kafka, tmp_path / name) for name in ("frozen", "other"))
    made = [window(START, 1, host) for host in range(8)]
    try:
        frozen.start()
        for host, first in enumerate(made):
            frozen.publish(first, host)
        frozen.wait(lambda: frozen.values() == expected(made))
        late = [window(START, 2, host) for host in range(8)]
        frozen.process.send_signal(signal.SIGSTOP)
        for host, second in enumerate(late):  # the answers to its open requests: it has them when it wakes up
            frozen.send(RAW, second.raw, f"host-{host}")
        made += late
        other.start()
        other.wait(lambda: other.values()[0] == expected(made)[0])
        for host, second in enumerate(late):
            other.send(ACTIVITY, second.activity, f"host-{host}")
        other.wait(lambda: other.values() == expected(made))
        frozen.process.send_signal(signal.SIGCONT)
        for host in range(8):
            made.append(window(START, 3, host))
            other.publish(made[-1], host)
        other.wait(lambda: other.values() == expected(made))
        # Ended, so that the supervisor starts it again, or back in the group.
        wait_until(lambda: frozen.process.poll() is not None or len(assignments(frozen)) > 1, frozen.log.read_text)
        batches = [SampleBatch.FromString(value).source for value, _ in other.messages(SAMPLES)]
        sources = Counter((b.topic, b.partition, b.offset, b.part) for b in batches)
        assert max(sources.values()) == 1, sources.most_common(3)
    finally:
        for worker in (frozen, other):
            worker.process.kill()
            worker.process.wait()


@pytest.mark.kafka
def test_partitions_are_assigned_soon_after_kafka_knows_of_them_again(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    """As after Kafka's restart: the worker that assigns partitions may see none for a moment."""
    worker = Worker(apache_kafka, tmp_path)
    worker.start()
    try:
        worker.wait(lambda: has_partitions(worker))
        delete_topics(apache_kafka)
        worker.wait(lambda: "partitions: none" in assignments(worker)[-1])
        create(apache_kafka, partitions=PARTITIONS, replication=1)
        # aiokafka would look again after five minutes.
        worker.wait(lambda: "partitions: none" not in assignments(worker)[-1], seconds=100)
    finally:
        worker.process.kill()
        worker.process.wait()


def has_partitions(worker: Worker) -> bool:
    return any("partitions: none" not in line for line in assignments(worker)[-1:])


def assignments(worker: Worker) -> list[str]:
    return [line for line in worker.log.read_text().splitlines() if "assigned partitions: " in line]


@pytest.mark.kafka
# What it does not notice, tests/streams/test_changed_logs.py has.
@pytest.mark.parametrize("noticed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_topics_that_are_made_anew_while_a_worker_runs_are_processed_from_their_beginning(
    apache_kafka: KafkaSettings, tmp_path: Path, noticed: bool
) -> None:
    """Also if the worker never sees that they are away."""
    worker = Worker(apache_kafka, tmp_path)
    worker.start()
    made = [window(START, sequence) for sequence in range(1, 7)]

    def processed() -> bool:
        if worker.process.poll() is not None:  # what runs it starts it again
            worker.start()
        return worker.values() == expected(made)

    try:
        for one in made[:4]:
            worker.publish(one)
        worker.wait(lambda: worker.values() == expected(made[:4]))
        if not noticed:
            worker.process.send_signal(signal.SIGSTOP)
        delete_topics(apache_kafka, {RAW, ACTIVITY})  # the log of samples still has positions of the old ones
        create(apache_kafka, partitions=PARTITIONS, replication=1)
        worker.process.send_signal(signal.SIGCONT)
        for one in made[4:]:
            worker.publish(one)
        wait_until(processed, lambda: worker.log.read_text())
    finally:
        worker.process.kill()
        worker.process.wait()


@pytest.mark.kafka
def test_partitions_that_are_added_while_a_worker_runs_are_processed_with_their_traces(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    worker = Worker(apache_kafka, tmp_path)
    worker.start()
    hosts = range(2 * PARTITIONS)
    made = [window(START, sequence) for sequence in range(1, 1 + 2 * len(hosts))]

    def processed(count: int) -> bool:
        if worker.process.poll() is not None:  # it saw activity and raw with different numbers; what runs it starts it
            worker.start()
        return worker.values() == expected(made[:count])

    def publish(windows: list[Window]) -> None:
        for host, one in zip(hosts, windows, strict=True):
            worker.publish(one, host)
        wait_until(partial(processed, made.index(windows[-1]) + 1), lambda: worker.log.read_text())

    try:
        publish(made[: len(hosts)])
        add_partitions(apache_kafka, 2 * PARTITIONS, STACKS, SAMPLES, ACTIVITY, RAW)
        worker.connect_again()  # it knows the new ones
        publish(made[len(hosts) :])
        assert any(message.partition() >= PARTITIONS for message in reading.messages(apache_kafka, SAMPLES))
    finally:
        worker.process.kill()
        worker.process.wait()


@KAFKA_IN_SOAK
def test_a_backlog_that_does_not_fit_into_memory_is_processed_whole_if_raw_waits_for_activity(worker: Worker) -> None:
    made = [window(START, sequence) for sequence in range(1, 13)]
    for one in made:
        worker.send(RAW, one.raw)
    for one in made:
        worker.send(ACTIVITY, one.activity)
    assert len(made[0].raw) > 1000
    worker.start(queued_bytes=8 * 2500)  # 2500 bytes for each topic of 4 partitions
    worker.wait(lambda: worker.values() == expected(made))


@IN_PROCESS
def test_symbols_that_nobody_has_sent_are_asked_for_of_one_host(worker: Worker) -> None:
    worker.start()
    worker.send(RAW, Raw([Sample(1)], host="host-0").bytes())
    requests: list[SymbolRequest] = []

    def asked() -> bool:
        requests.extend(SymbolRequest.FromString(value) for value, _ in worker.messages(SYMBOL_REQUESTS))
        return bool(requests)

    worker.wait(asked)
    found = [(request.build_id, request.host_id, request.file, request.attempt) for request in requests]
    # Nobody answers, so the host is asked again, which a slow reader sees.
    assert found == [("gnu:aa", "host-0", "/bin/a", attempt) for attempt in range(1, 1 + len(found))]


@IN_PROCESS
def test_names_that_come_late_from_a_slow_symbol_store_are_announced_while_samples_go_on(
    worker: Worker, symbols: tuple[SymbolFile, int], stored: SymbolFile, store: SlowStore
) -> None:
    port = free_port()
    worker.start(ICESTREAM_METRICS_LISTEN=f"127.0.0.1:{port}")
    worker.send(SYMBOLS, stored.SerializeToString())
    worker.wait(lambda: metrics(port).get(("icestream_streams_symbol_files_total", "new")) == 1)

    def announced() -> list[tuple[int, tuple[str, ...]]]:
        return [each for value, _ in worker.messages(STACKS) for each in stacks([value])[1].items()]

    for sequence in (1, 2):
        worker.send(RAW, Raw([Sample(1)], locations=[(1, symbols[1])], host="host-0", sequence=sequence).bytes())
    worker.wait(lambda: len(worker.messages(SAMPLES)) == 2)
    [(location, functions)] = announced()
    assert functions == ()
    store.answers.set()
    worker.wait(lambda: len(announced()) > 1)
    worker.send(RAW, Raw([Sample(1)], locations=[(1, symbols[1])], host="host-0", sequence=3).bytes())
    worker.wait(lambda: len(worker.messages(SAMPLES)) == 3)
    assert sorted(announced()) == [(location, ()), (location, ("work",))]


def metrics(port: int) -> dict[tuple[str, ...], float]:
    """What /metrics has, by name and labels; {} while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
            found = parse_metrics(answer.read().decode())
    except OSError:
        return {}
    return {(sample.name, *sample.labels.values()): sample.value for sample in itertools.chain(*found.values())}


def readiness(port: int) -> str:
    """What /readyz answers; "" while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=300) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def test_a_worker_is_not_ready_while_kafka_is_away(tmp_path: Path) -> None:
    broker, port = InProcessBroker(), free_port()
    worker = Worker(broker.settings(), tmp_path)
    worker.start(ICESTREAM_METRICS_LISTEN=f"127.0.0.1:{port}")
    try:
        worker.wait(lambda: readiness(port) == '{"status": "ready"}')
        broker.close()
        worker.wait(lambda: f"Kafka at {broker.address} cannot be reached" in readiness(port))
    finally:
        worker.process.kill()
        worker.process.wait()


LOSES_ITS_COORDINATION = (
    "from unittest.mock import AsyncMock; from aiokafka.consumer.group_coordinator import GroupCoordinator;"
    "GroupCoordinator.ensure_active_group = AsyncMock(side_effect=AssertionError('a mistake'))"
)
"""As a mistake in aiokafka does, for instance while Kafka starts."""


@IN_PROCESS
def test_a_worker_whose_coordination_with_kafka_fails_ends_at_once(worker: Worker) -> None:
    """The watchdog would not notice while nothing is sent, and after a minute else."""
    worker.start(change=LOSES_ITS_COORDINATION)
    assert worker.process.wait(PATIENCE_S) == 1
    assert "Unexpected error during coordination AssertionError('a mistake')" in worker.log.read_text().splitlines()[-1]


@IN_PROCESS
def test_health_and_metrics_are_served(worker: Worker) -> None:
    port = free_port()
    worker.start(ICESTREAM_METRICS_LISTEN=f"127.0.0.1:{port}")
    worker.wait(lambda: readiness(port) == '{"status": "ready"}')
    worker.publish(window(START, 1))
    worker.wait(lambda: worker.values()[0] > 0)
    values = metrics(port)
    assert values["icestream_streams_samples_total", "none"] >= 1
    assert values["icestream_streams_messages_total", RAW] == 1


def test_a_missing_topic_is_a_clear_error(tmp_path: Path) -> None:
    broker = InProcessBroker(topics=[RAW, ACTIVITY])
    worker = Worker(broker.settings(), tmp_path)
    worker.start()
    assert worker.process.wait(PATIENCE_S) == 1
    assert "icestream topics create" in worker.log.read_text().splitlines()[-1]
    broker.close()
