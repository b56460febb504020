"""A worker whose topics are made anew or lose their last messages: every message that Kafka has is processed."""

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from tests.changed_kafka import Changing, lose_tail, make_anew, make_anew_at_once
from tests.data.windows import window
from tests.streams.test_worker import START, Worker, expected
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.pipeline]
KEPT, LOST = 2, 3


@pytest.mark.parametrize(
    ("more", "anew", "runs"),
    [
        (5, False, True),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in itertools.product((1, 5), (False, True), (False, True))
            if each != (5, False, True)
        ),
    ],
)
def test_what_comes_in_place_of_lost_messages_is_processed(
    changing_kafka: Changing, tmp_path: Path, more: int, anew: bool, runs: bool
) -> None:
    """Fewer messages than were lost, and more."""
    settings = changing_kafka.settings()
    worker = Worker(settings, tmp_path / "worker")
    made = [window(START, sequence) for sequence in range(1, 1 + KEPT + LOST + more)]
    worker.start()

    def processed(count: int) -> bool:
        if worker.process.poll() is not None:  # what runs it starts it again
            worker.start()
        return worker.values() == expected(made[:count])

    def wait(count: int) -> None:
        wait_until(lambda: processed(count), lambda: worker.log.read_text())

    try:
        for one in made[: KEPT + LOST]:
            worker.publish(one)
        wait(KEPT + LOST)
        if not runs:
            worker.process.terminate()
            worker.process.wait()
        if anew:
            make_anew(settings, RAW, ACTIVITY)
        else:
            with changing_kafka.stopped() as data:
                for topic in (RAW, ACTIVITY):
                    for partition in range(4):  # the messages are in one of them
                        lose_tail(data, topic, partition, KEPT)
        worker.connect_again()
        for one in made[KEPT + LOST :]:
            worker.publish(one)
        if not runs:
            worker.start()
        wait(len(made))
    finally:
        worker.process.kill()
        worker.process.wait()


@contextmanager
def stopped(worker: Worker) -> Iterator[None]:
    """It sees nothing of what happens meanwhile, and its connections stay."""
    worker.process.send_signal(signal.SIGSTOP)
    yield
    worker.process.send_signal(signal.SIGCONT)


def check_every(seconds: float) -> str:
    return (
        f"import streams.worker; streams.worker._CHECK_LOGS_S = {seconds}; streams.partition.partition_task._IDLE_S = 1"
    )


@pytest.mark.parametrize(
    ("topics", "worker_notices"),
    [
        ((RAW, ACTIVITY), True),
        ((RAW,), False),
        pytest.param((RAW, ACTIVITY), False, marks=pytest.mark.soak),
        pytest.param((RAW,), True, marks=pytest.mark.soak),
    ],
)
def test_a_topic_made_anew_within_a_moment_is_processed_from_its_beginning(
    apache_kafka: KafkaSettings, tmp_path: Path, topics: tuple[str, ...], worker_notices: bool
) -> None:
    """The new log is soon longer than the old one, and the worker goes on in it. Else the next worker notices that."""
    worker = Worker(apache_kafka, tmp_path / "worker")
    old, new = [[window(START, sequence) for sequence in numbers] for numbers in (range(1, 6), range(6, 15))]
    worker.start(change=check_every(1 if worker_notices else 3600))
    try:
        for one in old:
            worker.publish(one)
        worker.wait(lambda: worker.values() == expected(old))
        with stopped(worker):
            make_anew_at_once(apache_kafka, *topics)
            worker.connect_again()
            for one in new:
                worker.publish(one)
        if worker_notices:
            wait_until(lambda: worker.process.poll() is not None, worker.log.read_text)
        else:
            # Where it was slow, its first check came after all, and that is as good.
            wait_until(
                lambda: worker.process.poll() is not None or worker.values() == expected(old + new[5:]),
                worker.log.read_text,
            )
            worker.process.terminate()
            worker.process.wait()
        worker.start(change=check_every(1))
        worker.wait(lambda: worker.values() == expected(old + new))
    finally:
        worker.process.kill()
        worker.process.wait()


def test_activity_made_anew_within_a_moment_is_processed_from_its_beginning(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    worker = Worker(apache_kafka, tmp_path / "worker")
    old, new = [[window(START, sequence) for sequence in numbers] for numbers in (range(1, 6), range(6, 15))]
    worker.start(change=check_every(1))
    try:
        for one in old:
            worker.publish(one)
        worker.wait(lambda: worker.values() == expected(old))
        with stopped(worker):
            make_anew_at_once(apache_kafka, ACTIVITY)
            worker.connect_again()
            for one in new:
                worker.send(ACTIVITY, one.activity)
        wait_until(lambda: worker.process.poll() is not None, worker.log.read_text)
        worker.start(change=check_every(1))
        for one in new:
            worker.send(RAW, one.raw)
        worker.wait(lambda: worker.values() == expected(old + new))
    finally:
        worker.process.kill()
        worker.process.wait()
