"""A worker whose topics are made anew or lose their last messages: every message that Kafka has is processed."""

from pathlib import Path

import pytest

from icestream.topics import ACTIVITY, RAW
from tests.changed_kafka import Changing, lose_tail, make_anew
from tests.data.windows import window
from tests.streams.test_worker import START, Worker, expected
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.pipeline]
KEPT, LOST = 2, 3


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("more", [pytest.param(1, marks=pytest.mark.soak), 5])
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
