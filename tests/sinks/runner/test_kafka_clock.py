"""A sink whose clock is wrong deletes nothing that is not old by Kafka's time."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka import KafkaException

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import DAY_S, HOUR_S
from icestream.settings import KafkaSettings
from icestream.topics import RAW, SAMPLES
from sinks.clickhouse.retention import set_retention
from sinks.clickhouse.sink import ClickHouseSink
from sinks.lake.sink import LakeSink
from sinks.rollups.builder import Rollups
from sinks.runner.kafka_clock import KafkaClock, newest_timestamp_ms
from sinks.service import start
from sinks.settings import SinkSettings
from tests.data.windows import window
from tests.sinks import messages
from tests.sinks.lake.test_sink import decoded, rows, write
from tests.sinks.messages import make_range, sample_batch
from tests.sinks.running import send
from tests.waiting import PATIENCE_S, wait_until


def test_kafkas_time_is_that_of_the_newest_message_and_goes_on_without_messages() -> None:
    clock, now = KafkaClock(), time.time()
    assert clock.now() is None
    clock.advance(-1)
    assert clock.now() is None
    for days in (3, 2, 5):
        clock.advance(int(now - days * DAY_S) * 1000)
    first = clock.now()
    assert first == pytest.approx(now - 2 * DAY_S, abs=60)
    wait_until(lambda: (clock.now() or 0) > (first or 0) + 0.01)
    clock.advance(int(now + 9 * DAY_S) * 1000)
    assert clock.now() == pytest.approx(time.time(), abs=60)


def test_samples_stay_and_rollups_are_not_final_while_they_are_young_by_kafkas_time(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_retention(client, 14)
    now = int(time.time())
    monkeypatch.setattr(messages, "START_MS", (now - 2 * HOUR_S) * 1000)
    ClickHouseSink(clients).write(make_range(SAMPLES, decoded(1)))
    clock = KafkaClock()
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + 20 * DAY_S)

    def step() -> None:
        for _ in range(3):
            Rollups(clients, PATIENCE_S, now=clock.now).step(threading.Event())

    step()
    assert client.query("SELECT count() FROM rollup_builds").result_rows == [(0,)]
    clock.advance(now * 1000)
    step()
    assert client.query("SELECT count() FROM samples").result_rows == [(5,)]
    assert client.query("SELECT DISTINCT state FROM rollup_builds ORDER BY state").result_rows == [
        ("begun",),
        ("built",),
    ]
    clock.advance((now + 20 * DAY_S) * 1000)
    step()
    assert client.query("SELECT count() FROM samples").result_rows == [(0,)]


def test_the_archive_and_the_lake_keep_days_that_are_young_by_kafkas_time(
    broker: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SinkSettings(
        kafka=broker.kafka, archive=str(tmp_path / "archive"), lake=str(tmp_path / "lake"), archive_days=30,
        lake_days=30, lake_flush_s=0.1,
    )  # fmt: skip
    now = time.time_ns()
    days = [datetime.fromtimestamp(now / 1e9 - age * DAY_S, timezone.utc).date().isoformat() for age in (20, 60)]
    for day in days:
        (tmp_path / "archive" / RAW / f"date={day}").mkdir(parents=True)
    lake = tmp_path / "lake"
    for age in (20, 60):
        with monkeypatch.context() as patch:
            patch.setattr(messages, "START_MS", now // 10**6 - age * DAY_S * 1000)
            write(LakeSink(str(lake)), SAMPLES, age, *decoded(1))
    assert dates(lake) == set(days)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + 45 * DAY_S)
    stop = threading.Event()
    running = start(settings, stop, kinds=("archive", "lake"))
    try:
        send(broker, RAW, window(now, 1).raw)
        send(broker, SAMPLES, sample_batch(1))
        wait_until(lambda: not (tmp_path / "archive" / RAW / f"date={days[1]}").exists())
        wait_until(lambda: days[1] not in dates(lake))
    finally:
        stop.set()
        running.join(PATIENCE_S)
    assert (tmp_path / "archive" / RAW / f"date={days[0]}").exists()
    assert days[0] in dates(lake)


def test_a_sink_that_starts_again_knows_kafkas_time_without_a_message(
    broker: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.runner.runner._ASK_TIME_S", 0.0)
    monkeypatch.setattr("icestream.kafka.readiness.LOOK_S", 0.1)
    settings = SinkSettings(**dataclasses.asdict(broker), archive=str(tmp_path), archive_days=30, lake_flush_s=0.1)
    send(broker, RAW, window(time.time_ns(), 1).raw)
    with archiving(settings):
        wait_until(lambda: any(tmp_path.rglob("*.parquet")))  # what was written is committed before it ends
    young, old = (tmp_path / RAW / f"date={day_before(days)}" for days in (20, 60))
    for day in (young, old):
        day.mkdir(parents=True)
    if not broker.kafka_in_process:  # whose time is that of this machine
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + 45 * DAY_S)
    with archiving(settings):
        wait_until(lambda: not old.exists())
    assert young.exists()


@pytest.mark.kafka
def test_kafka_without_messages_tells_no_time(apache_kafka: KafkaSettings) -> None:
    answers: list[float] = []

    def ask() -> bool:
        with suppress(KafkaException):  # partitions that were just made may have no leader yet
            answers.append(newest_timestamp_ms(apache_kafka, [(RAW, 0), (SAMPLES, 1)]))
        return bool(answers)

    wait_until(ask)
    send(apache_kafka, SAMPLES, sample_batch(1), partition=1)
    ask()
    assert answers == [-1, pytest.approx(time.time() * 1000, abs=60_000)]


@contextmanager
def archiving(settings: SinkSettings) -> Iterator[None]:
    stop = threading.Event()
    running = start(settings, stop, kinds=("archive",))
    try:
        yield
    finally:
        stop.set()
        running.join(PATIENCE_S)


def day_before(days: int) -> str:
    return datetime.fromtimestamp(time.time() - days * DAY_S, timezone.utc).date().isoformat()


def dates(lake: Path) -> set[str]:
    return {row["date"].isoformat() for row in rows(lake, "samples")}
