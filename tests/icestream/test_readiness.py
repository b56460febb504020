import pytest
from confluent_kafka import TopicPartition

from icestream import kafka, readiness
from icestream.readiness import GroupWatch, Look, Standstill
from icestream.topics import RAW, STREAMS_GROUP
from standalone.supervisor.in_process_broker import InProcessBroker
from tests.waiting import wait_until


def standstills(looks: list[tuple[int, int]], work: tuple[int, ...] = (), excused: bool = False) -> list[float]:
    """Seconds without progress, for looks (committed, lag) every 5 seconds."""
    standstill = Standstill()
    return [
        standstill.seconds(Look(committed, {("t", 0): lag}), work[i] if work else 0, excused, 1000 + 5.0 * i)
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


def test_a_group_is_not_ready_while_kafka_is_away_or_while_it_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "LOOK_S", 0.05)
    monkeypatch.setattr(readiness, "STANDSTILL_S", 0.2)
    monkeypatch.setattr(readiness, "_TIMEOUT_S", 0.5)
    broker = InProcessBroker()
    settings = broker.settings()
    sender, group = kafka.producer(settings), kafka.consumer(settings, STREAMS_GROUP)

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
    for client in (sender, group):
        client.close()
    broker.close()
    wait_until(
        lambda: (watch.problem or "").startswith(f"Kafka at {settings.kafka} cannot be reached: "),
        lambda: watch.problem,
    )
    watch.close()
