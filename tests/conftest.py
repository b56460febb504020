"""Brokers for all tests: the in-process one, and a real Apache Kafka where its jars are (in CI: always)."""

import contextlib
import functools
import gc
import os
import time
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from xdist.scheduler import LoadScopeScheduling

from icestream.clickhouse.client import connect
from icestream.commands.topics import create
from icestream.kafka import clients
from icestream.kafka.clients import client_config
from icestream.settings import KafkaSettings
from icestream.topics import OPTIONAL_TOPICS, TOPICS
from standalone.supervisor import in_process_broker as broker_process
from standalone.supervisor import local_kafka as kafka_process
from standalone.supervisor.in_process_broker import PARTITIONS, InProcessBroker
from standalone.supervisor.local_kafka import LocalKafka, why_unavailable
from tests import file_seconds, quick_groups, unwind_tables
from tests.changed_kafka import Changing
from tests.file_seconds import pytest_runtest_logreport, pytest_terminal_summary
from tests.ports import free_port
from tests.waiting import PATIENCE_S

__all__ = ["pytest_runtest_logreport", "pytest_terminal_summary"]

# Clusters of two shards and of one, all of which are the engine itself (tests/sinks/clusters.py).
_SHARD = "<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>"
ENGINE_CONFIG = (
    "<clickhouse><tcp_port>9000</tcp_port>"
    f"<remote_servers><halves>{_SHARD * 2}</halves><whole>{_SHARD}</whole></remote_servers></clickhouse>"
)
# While tests are collected hardly anything becomes garbage, and looking for it takes a quarter of the time.
gc.disable()
TESTS = Path(__file__).parent
KAFKA, CHANGING = "apache_kafka", "changing_kafka"
ITS_FILE_NAMES = {"ebpf", "alone", "soak"}
"""Marks of tests that run in passes of their own, which read the files with these words only."""
# Tests of these folders share nothing but fixtures of the session, so each of them may run in any process. Tests of
# other files stay together: they share fixtures of their module.
SEPARATE = {"jobs", "pipeline", "sinks", "standalone"}
# But these share a fixture of their module that takes long.
TOGETHER = {"tests/pipeline/test_shards.py", "tests/sinks/test_otel_view.py"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests that take a broker, a store or start everything: `make test-fast` has none of them. Files mark other
    slow tests themselves."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if KAFKA in item.nodeid or CHANGING in item.nodeid:
        item.add_marker("kafka")
    elif fixtures & {"broker", "in_process_broker"} or item.path.relative_to(TESTS).parts[0] == "standalone":
        item.add_marker("pipeline")
    elif "engine" in fixtures:
        item.add_marker("store")
    for mark in ITS_FILE_NAMES & {mark.name for mark in item.iter_markers()}:
        if f"mark.{mark}" not in _text(item.path):
            raise pytest.UsageError(
                f"{item.nodeid}: `make test` finds tests of the mark {mark} by the text mark.{mark}"
            )


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that needs Apache Kafka says so in its ID; of others pytest-xdist knows nothing."""
    if "kafka_in_id" in metafunc.fixturenames:
        name = CHANGING if CHANGING in metafunc.fixturenames else KAFKA
        metafunc.parametrize("kafka_in_id", [name], scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest first, so that no process works on at the end while the others have nothing to do."""
    seconds = file_seconds.kept().get(file_seconds.PASS, {})
    items.sort(key=lambda item: (_order(item), -seconds.get(item.nodeid.partition("::")[0], 0)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # DuckDB complains of objects that are never deleted


def _order(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    return next((i for i, mark in enumerate(("kafka", "browser", "pipeline", "ebpf")) if mark in marks), 4)


class Groups(LoadScopeScheduling):
    """Which tests run in one process, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.removeprefix("tests/").partition("/")[0]
        if CHANGING in nodeid:  # three groups: no more than three processes start an Apache Kafka that others share
            return CHANGING
        if KAFKA in nodeid:
            return f"{KAFKA}: streams" if folder in {"pipeline", "streams"} else KAFKA
        if folder == "browser":  # one Chromium and one API
            return folder
        return nodeid if folder in SEPARATE and file not in TOGETHER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    config.option.loadscopereorder = False  # `_order` says which groups go first
    return Groups(config, log)


_clients: "weakref.WeakSet[Producer | Consumer]" = weakref.WeakSet()  # that were made by icestream.kafka.clients


class _TrackedProducer(Producer):
    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        _clients.add(self)


class _TrackedConsumer(Consumer):
    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        _clients.add(self)


clients.Producer, clients.Consumer = _TrackedProducer, _TrackedConsumer  # type: ignore[misc]
kafka_process._START_TIMEOUT_S = broker_process._TIMEOUT_S = PATIENCE_S  # beside other tests it may take minutes


# Queries of tests are many, read few rows and run once: compiling them takes a fifth of their time, several threads for
# each take a tenth. The engines of `icestream store` and of jobs that tests start compile, and have their threads.
FOR_SMALL_QUERIES = dict.fromkeys(
    ("compile_expressions", "compile_aggregate_expressions", "compile_sort_description"), 0
) | {"max_threads": 1}
_get_client = clickhouse_connect.get_client


def _client_for_small_queries(**options: Any) -> Any:
    options["settings"] = FOR_SMALL_QUERIES | options.get("settings", {})
    return _get_client(**options)


clickhouse_connect.get_client = _client_for_small_queries
quick_groups.use()
unwind_tables.share()


def close_clients() -> None:
    """Closes clients before their broker: they would try to reach it, and log that, until the garbage collector came.

    A client may be held by a fixture, or by a traceback, for longer than its broker lives.
    """
    for client in list(_clients):
        with contextlib.suppress(RuntimeError):  # it was closed already
            if isinstance(client, Producer):
                client.purge()
            client.close()
    _clients.clear()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DSN of the embedded ClickHouse, without a database: a process can open one folder only, so all tests share it."""
    dsn = f"chdb://{tmp_path_factory.mktemp('chdb')}"
    config = tmp_path_factory.mktemp("chdb_config") / "config.xml"
    config.write_text(ENGINE_CONFIG)
    first = connect(dsn, chdb_options={"config-file": str(config)})  # later clients get the same engine
    yield dsn
    first.close()


# Several tests run at once, on machines of any speed: no example is too slow, and making ten takes as long as it takes.
# CI tries the same examples each time: no change is refused for what another one did. All other runs try new ones.
# `make test-more` loads the other profile, tries many more, and prints its seed. tests/examples.py is for tests that
# need another number.
hypothesis_settings.register_profile(
    "icestream",
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
hypothesis_settings.register_profile(
    "soak", hypothesis_settings.get_profile("icestream"), max_examples=1000, derandomize=False
)
hypothesis_settings.load_profile("icestream")


@pytest.fixture
def in_process_broker() -> Iterator[KafkaSettings]:
    """Settings of a fresh in-process broker with all topics."""
    broker = InProcessBroker()
    yield broker.settings()
    close_clients()
    broker.close()


@pytest.fixture(scope="session")
def kafka_in_id() -> None:
    """See `pytest_generate_tests`."""


@pytest.fixture(scope="session")
def kafka_jars() -> None:
    """Skips tests that need Apache Kafka where its jars are not; in CI they fail."""
    if (reason := why_unavailable()) is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def local_kafka(kafka_in_id: None, kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """An Apache Kafka for all tests; without topics."""
    running = LocalKafka(tmp_path_factory.mktemp("kafka"), port=free_port())
    running.start()
    yield running
    close_clients()
    running.close()


@pytest.fixture
def apache_kafka(local_kafka: LocalKafka) -> KafkaSettings:
    """Settings of the Apache Kafka with all topics, empty, and without groups."""
    settings = local_kafka.settings()
    make_empty(settings)
    return settings


@pytest.fixture(scope="session")
def _changing(kafka_in_id: None, kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    running = Changing(tmp_path_factory.mktemp("changing_kafka"))
    yield running
    close_clients()
    running.close()


@pytest.fixture
def changing_kafka(_changing: Changing) -> Iterator[Changing]:
    """An Apache Kafka with all topics, empty, and without groups, whose logs the test changes."""
    if not _changing.runs():  # the test before has failed while it was stopped
        _changing.start()
    make_empty(_changing.settings())
    yield _changing
    close_clients()


@pytest.fixture(params=["in_process_broker", pytest.param("apache_kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> KafkaSettings:
    """Each of the two: a test that takes it runs twice."""
    settings = request.getfixturevalue(request.param)
    assert isinstance(settings, KafkaSettings)
    return settings


def make_empty(settings: KafkaSettings) -> None:
    """Makes all topics anew, and deletes groups."""
    delete_topics(settings)
    delete_groups(settings)
    create(settings, partitions=PARTITIONS, replication=1)


def delete_groups(settings: KafkaSettings) -> None:
    """Deletes the groups that nobody is in any more."""
    admin = AdminClient(client_config(settings))
    names = [group.group_id for group in admin.list_consumer_groups(request_timeout=300).result().valid]
    for deletion in admin.delete_consumer_groups(names).values() if names else ():
        with contextlib.suppress(KafkaException):  # somebody is in it
            deletion.result(PATIENCE_S)


def delete_topics(settings: KafkaSettings, names: Collection[str] = ()) -> None:
    """Deletes all our topics that are there, or those of these names, and waits until they are gone."""
    admin = AdminClient(client_config(settings))
    ours = set(names) or {topic.name for topic in (*TOPICS, *OPTIONAL_TOPICS)}
    deadline = time.monotonic() + PATIENCE_S
    while present := sorted(ours & set(admin.list_topics(timeout=300).topics)):
        assert time.monotonic() < deadline, f"still there: {present}"
        for deletion in admin.delete_topics(present).values():
            with contextlib.suppress(KafkaException):  # it was being deleted already
                deletion.result(PATIENCE_S)
        time.sleep(0.05)
