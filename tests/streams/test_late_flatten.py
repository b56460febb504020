"""`icestream flatten` that starts late, on a broker that has dropped most of what was announced."""

import base64
import random

import numpy as np
import pytest

from icestream.columns import packed
from icestream.kafka.clients import producer
from icestream.messages.message_id import MessageId
from icestream.settings import KafkaSettings
from icestream.topics import RAW, SAMPLES, STACKS
from streams.flatten import flattener
from streams.flatten.record import UNRESOLVED
from streams.logs.stacks_retention import read_retention
from streams.partition.process import Processor
from streams.settings import StreamsSettings
from tests.data.handwritten import START, Raw, Sample
from tests.data.messages import WINDOW_NS
from tests.streams.test_flatten import Reader, running
from tests.waiting import wait_until

HOT = [f"hot {n}" for n in range(5)]
NEW, SAMPLED = 900, 3
"""How many stacks of each batch come only once, and how many of them have a sample."""
BATCHES = 12


def batch(sequence: int, chance: random.Random, start: int = START) -> bytes:
    """A raw batch of stacks of one function; about 600 kB are announced, compressed. `start`: of the first batch."""
    names = [*HOT, *(base64.b64encode(chance.randbytes(675)).decode() for _ in range(NEW))]
    rows = range(len(names))
    samples = [Sample(n, stack=n % len(HOT)) for n in range(100)]
    samples += [Sample(n, stack=len(HOT) + n) for n in range(SAMPLED)]
    raw = Raw(
        samples, [[row] for row in rows], [(3, 1) for _ in rows], sequence=sequence, start=start + sequence * WINDOW_NS
    )
    message = raw.message()
    message.strings[:] = ["", *names]
    columns = {"location_function": np.arange(len(names)) + 1, "location_file": np.zeros(len(names))}
    return packed.serialize(message, raw.columns() | columns)


def test_a_late_flatten_names_what_is_in_use(in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flattener, "_NAMES_WAIT_S", 0.5)  # nothing more is announced
    processor = Processor(retention=read_retention(StreamsSettings(kafka=in_process_broker.kafka)))
    sender, chance = producer(in_process_broker), random.Random(1)
    for sequence in range(1, BATCHES + 1):
        outputs = processor.raw(batch(sequence, chance), MessageId("cluster", RAW, 0, sequence))
        for topic, values in ((STACKS, outputs.stacks), (SAMPLES, outputs.samples)):
            for value in values:
                sender.produce(topic, value, partition=0)
        assert sender.flush(60) == 0
    reader = Reader(in_process_broker)
    expected = BATCHES * (100 + SAMPLED) * 10
    with running(in_process_broker, 200):
        wait_until(lambda: reader.total() >= expected, reader.total)
    named = [record["functions"][-1] for record in reader.records for _ in range(record["samples"])]
    assert len(named) == BATCHES * (100 + SAMPLED)
    assert [named.count(name) for name in HOT] == [BATCHES * 20] * len(HOT)
    assert 0 < named.count(UNRESOLVED) < BATCHES * SAMPLED  # the broker did drop announcements
    reader.close()
