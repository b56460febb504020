import json
import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from icestream.kafka import clients, readiness
from icestream.kafka.readiness import GroupOffsets, GroupWatch, Partition, Standstill, Standstills
from icestream.settings import KafkaSettings
from icestream.topics import RAW, STREAMS_GROUP
from standalone.supervisor.in_process_broker import InProcessBroker
from tests.brokers import Brokers
from tests.waiting import PATIENCE_S, wait_until


def standstills(looks: list[tuple[int, int]], work: tuple[int, ...] = (), excused: bool = False) -> list[float]:
    """Seconds without progress, for looks (committed, lag) every 5 seconds."""
    standstill = Standstill()
    return [
        standstill.seconds((committed, work[i] if work else 0), lag, excused, 1000 + 5.0 * i)
        for i, (committed, lag) in enumerate(looks)
    ]


def test_no_progress_while_lag_grows_is_a_standstill() -> None:
    assert standstills([(5, 1), (5, 2), (5, 3), (5, 4), (6, 3)]) == [0, 5, 10, 15, 0]


def test_progress_an_empty_topic_or_a_constant_lag_is_none() -> None:
    assert standstills([(5, 1), (6, 2), (7, 9), (8, 20), (9, 50)]) == [0] * 5
    assert standstills([(5, 0)] * 9) == [0] * 9
    assert standstills([(5, 3)] * 9) == [0] * 9


def test_the_time_starts_when_the_lag_begins_to_grow() -> None:
    assert standstills([(5, 3), (5, 3), (5, 3), (5, 4), (5, 9)]) == [0, 0, 0, 5, 10]


def test_who_recovers_or_waits_for_others_does_not_stand_still() -> None:
    looks = [(5, 1), (5, 2), (5, 3), (5, 4), (5, 5)]
    assert standstills(looks, work=(0, 1, 2, 2, 2)) == [0, 0, 0, 5, 10]
    assert standstills(looks, excused=True) == [0] * 5


def standing(
    looks: list[tuple[dict[Partition, int], dict[Partition, int]]], own: Sequence[Mapping[Partition, int | None]]
) -> str:
    """What has stood still for more than 10 s, for looks (committed, lags) every 5 seconds."""
    standstills = Standstills()
    for i, (committed, lags) in enumerate(looks):
        standstills.update(GroupOffsets(committed, lags), own[i], 1000 + 5.0 * i)
    return standstills.longer_than(10.0) or ""


MOVES, STUCK, FOREIGN = (RAW, 0), (RAW, 1), (RAW, 2)
LOOKS = [({MOVES: i, STUCK: 7, FOREIGN: 7}, {MOVES: i, STUCK: i, FOREIGN: 100 * i}) for i in range(5)]


def test_a_partition_that_stands_still_is_named_although_others_move() -> None:
    told = f"nothing of {RAW}/1 was processed for 20 s, and 4 messages wait"
    assert standing(LOOKS, [{MOVES: 0, STUCK: 0}] * 5) == told
    assert standing(LOOKS, [{MOVES: 0}] * 5) == ""
    assert standing(LOOKS, [{}] * 5) == ""  # it has no partition, and the group moves


def test_work_on_a_partition_and_a_new_assignment_of_it_count_as_progress() -> None:
    assert standing(LOOKS, [{STUCK: i} for i in range(5)]) == ""
    assert standing(LOOKS, [{STUCK: 0}, {STUCK: 0}, {}, {STUCK: 0}, {STUCK: 0}]) == ""


def test_a_partition_that_waits_for_others_does_not_stand_still_and_no_group_that_has_one() -> None:
    assert standing(LOOKS, [{MOVES: 0, STUCK: None}] * 5) == ""
    assert "/1 was processed for 20 s" in standing(LOOKS, [{MOVES: None, STUCK: 0}] * 5)
    assert "/1 was processed for 15 s" in standing(LOOKS, [{STUCK: None}, *[{STUCK: 0}] * 4])
    still: list[tuple[dict[Partition, int], dict[Partition, int]]] = [({STUCK: 7}, {STUCK: i}) for i in range(5)]
    assert standing(still, [{MOVES: None}] * 5) == ""


def test_a_group_of_which_nothing_moves_is_told_by_a_process_without_partitions() -> None:
    still: list[tuple[dict[Partition, int], dict[Partition, int]]] = [({STUCK: 7}, {STUCK: i}) for i in range(5)]
    assert standing(still, [{}] * 5) == f"nothing of {RAW} was processed for 20 s, and 4 messages wait"


def test_partitions_of_which_no_leader_answers_do_not_stand_still() -> None:
    looks: list[tuple[dict[Partition, int], dict[Partition, int]]] = [({MOVES: i}, {MOVES: i}) for i in range(5)]
    assert standing(looks, [{MOVES: 0, STUCK: 0}] * 5) == ""


@pytest.mark.slow
def test_a_client_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the files of certificates are being replaced; it goes on when they are there."""
    monkeypatch.setattr(readiness, "LOOK_S", 0.05)
    missing = tmp_path / "ca.pem"
    watch = GroupWatch(
        KafkaSettings(kafka="127.0.0.1:1", kafka_security_protocol="SSL", kafka_ssl_ca=str(missing)),
        STREAMS_GROUP, (RAW,),
    )  # fmt: skip
    wait_until(lambda: "ssl.ca.location failed" in (watch.problem or ""), lambda: watch.problem)
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=ca -keyout key -out made"
    )
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "made").rename(missing)
    wait_until(lambda: "ssl.ca.location failed" not in (watch.problem or ""), lambda: watch.problem)
    watch.close()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    """Broker 1 has the partitions 0 and 1, and the group."""
    made = Brokers([RAW], 2)
    for partition in range(4):
        made.set_leader(RAW, partition, 1 + partition // 2)
    made.set_coordinator(STREAMS_GROUP, 1)
    yield made
    made.close()


def test_while_no_leader_answers_for_a_partition_the_others_are_judged(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_S", 0.05)
    monkeypatch.setattr(readiness, "STANDSTILL_S", 0.2)
    sender = clients.producer(brokers.settings)

    def told(problem: str) -> bool:
        sender.produce(RAW, b"x", partition=0)
        assert sender.flush(PATIENCE_S) == 0
        return (watch.problem or "").startswith(problem)

    brokers.set_leader(RAW, 1, -1)
    watch = GroupWatch(brokers.settings, STREAMS_GROUP, (RAW,), own=lambda: {(RAW, 0): 0, (RAW, 1): 0})
    none, stuck = f"no leader answers for {RAW}/1", f"; nothing of {RAW} was processed for "
    wait_until(lambda: watch.problem == none, lambda: watch.problem)
    wait_until(lambda: told(f"{none}{stuck}"), lambda: watch.problem)
    brokers.set_down(2)
    wait_until(lambda: told(f"{none}, {RAW}/2, {RAW}/3{stuck}"), lambda: watch.problem)
    brokers.set_leader(RAW, 1, 1)
    wait_until(lambda: told(f"no leader answers for {RAW}/2, {RAW}/3{stuck}"), lambda: watch.problem)
    watch.close()
    watch._thread.join(PATIENCE_S)
    sender.close()


def test_each_broker_is_asked_twice_however_many_partitions_it_has(brokers: Brokers) -> None:
    asked: list[int] = []

    def count(statistics: str) -> None:
        asked[:] = [each["req"].get("ListOffsets", 0) for each in json.loads(statistics)["brokers"].values()]

    more: dict[str, object] = {"statistics.interval.ms": 50, "stats_cb": count}
    reader = clients.consumer(brokers.settings, STREAMS_GROUP, **more)
    looks = 3
    for _ in range(looks):
        assert len(readiness.read_offsets(reader, (RAW,)).lags) == 4
    wait_until(lambda: (reader.poll(0.05) is None) and sum(asked) >= 2 * 2 * looks, lambda: asked)
    assert sum(asked) == 2 * 2 * looks
    reader.close()


def test_a_group_is_not_ready_while_kafka_is_away_or_while_it_stands_still(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(readiness, "LOOK_S", 0.05)
    monkeypatch.setattr(readiness, "STANDSTILL_S", 0.2)
    monkeypatch.setattr(readiness, "_TIMEOUT_S", 0.5)
    broker = InProcessBroker()
    settings = broker.settings()
    sender, group = clients.producer(settings), clients.consumer(settings, STREAMS_GROUP)

    def stands_still() -> bool:
        sender.produce(RAW, b"x", partition=0)
        sender.flush(60)
        problem = watch.problem or ""
        return problem.startswith(f"nothing of {RAW} was processed for ") and "messages wait" in problem

    watch = GroupWatch(settings, STREAMS_GROUP, (RAW,))
    wait_until(lambda: watch.problem is None, lambda: watch.problem)
    wait_until(stands_still, lambda: watch.problem)
    _, high = group.get_watermark_offsets(TopicPartition(RAW, 0), timeout=300)
    group.commit(offsets=[TopicPartition(RAW, 0, high)], asynchronous=False)
    wait_until(lambda: watch.problem is None, lambda: watch.problem)
    assert [
        record.getMessage().partition(":")[0] for record in caplog.records if record.name == readiness.__name__
    ] == [
        f"{STREAMS_GROUP} is not ready",
        f"{STREAMS_GROUP} is ready again",
    ]
    for client in (sender, group):
        client.close()
    broker.close()
    wait_until(
        lambda: (watch.problem or "").startswith(f"Kafka at {settings.kafka} cannot be reached: "),
        lambda: watch.problem,
    )
    watch.close()
