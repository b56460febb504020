"""The watchdog ends a worker that stands still, and no other."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from icestream.kafka import clients, readiness
from icestream.kafka.readiness import Partition
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from streams.watchdog import Watchdog
from tests.data.windows import window
from tests.pipeline.reading import messages
from tests.streams.test_worker import START, Worker
from tests.waiting import PATIENCE_S, wait_until

MOVES, STUCK = (RAW, 0), (RAW, 1)


class Watched:
    """A worker as its watchdog sees it: partition 0 moves on between any two looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.barked: list[str] = []

    def own(self) -> Mapping[Partition, int | None]:
        self.looks += 1
        return {MOVES: self.looks, STUCK: 0}

    def watchdog(self, settings: KafkaSettings, limit_s: float) -> Watchdog:
        return Watchdog(settings, limit_s, self.own, lambda error: self.barked.append(str(error)))


class Recovering(Watched):
    """Each look finds that it has recovered more of the other partition."""

    def own(self) -> Mapping[Partition, int | None]:
        return {**super().own(), STUCK: self.looks}


class Rebalancing(Watched):
    """At every other look it has the other partition."""

    def own(self) -> Mapping[Partition, int | None]:
        both = super().own()
        return {STUCK: 0} if self.looks % 2 else {MOVES: both[MOVES]}


class Held(Watched):
    """The other partition waits for readers of what it publishes."""

    def own(self) -> Mapping[Partition, int | None]:
        return {**super().own(), STUCK: None}


class Lag:
    """The lag of partition 1; nothing of it is ever committed."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._sender = clients.producer(settings)

    def grow(self) -> None:
        self._sender.produce(STUCK[0], b"x", partition=STUCK[1])
        self._sender.flush(PATIENCE_S)


def test_a_worker_ends_once_if_one_of_its_partitions_stands_still_while_others_move(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_S", 0.02)
    lag, watched = Lag(in_process_broker), Watched()
    watchdog = watched.watchdog(in_process_broker, 0.2)

    def barked(times: int) -> bool:
        lag.grow()
        return len(watched.barked) >= times

    wait_until(lambda: barked(1), lambda: watchdog.problem)
    looks = watched.looks
    wait_until(lambda: barked(2) or watched.looks > looks + 5, lambda: watchdog.problem)
    watchdog.close()
    assert len(watched.barked) == 1
    assert watched.barked[0].startswith(f"nothing of {RAW}/1 was processed for ")
    assert watched.barked[0].endswith("this worker has partitions [0, 1]. It ends now and should be started again")


@pytest.mark.parametrize("kind", [Recovering, Rebalancing, Held])
def test_no_worker_ends_because_it_recovers_or_gets_a_partition_or_waits_for_readers(
    kind: type[Watched], in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_S", 0.02)
    lag, watched = Lag(in_process_broker), kind()
    watchdog = watched.watchdog(in_process_broker, 0.0)  # any time without progress is too long

    def looked_often() -> bool:
        lag.grow()
        return watched.looks > 20

    wait_until(looked_often, lambda: watchdog.problem)
    watchdog.close()
    assert watched.barked == []


def test_the_process_of_a_worker_ends_if_it_is_given_nothing_of_one_partition(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    worker = Worker(in_process_broker, tmp_path)
    made = [window(START, 1, host) for host in range(8)]
    for host, one in enumerate(made):
        worker.publish(one, host)
    found = messages(in_process_broker, RAW)
    partitions = {(message.key() or b"").decode(): message.partition() for message in found}
    stuck, moves = "host-0", next(host for host in partitions if partitions[host] != partitions["host-0"])
    worker.start(
        change="import icestream.kafka.readiness; icestream.kafka.readiness.LOOK_S = 0.1; "
        "put = streams.app.PartitionTasks.put; "
        "streams.app.PartitionTasks.put = lambda self, topic, event: "
        f"event.partition == {partitions[stuck]} or put(self, topic, event)",
        ICESTREAM_WATCHDOG_S="2",
    )

    def grown() -> bool:
        for host in (stuck, moves):
            worker.send(RAW, made[0].raw, host)
        return worker.process.poll() is not None

    try:
        worker.wait(lambda: worker.values()[0] > 0)  # before it has partitions, it would end for that
        wait_until(grown, worker.log.read_text)
    finally:
        worker.process.kill()
        worker.process.wait()
    assert worker.process.returncode == 1
    assert "It ends now and should be started again" in worker.log.read_text()
