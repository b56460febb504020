"""What is used can be named from what Kafka keeps of icestream.stacks, and that costs no more than what is new."""

from dataclasses import replace

import numpy as np
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from icestream.kafka.clients import client_config
from icestream.messages.stacks import decode_stacks
from icestream.settings import KafkaSettings
from icestream.times import DAY_NS
from icestream.topics import STACKS
from streams.logs.stacks_retention import IN_PROCESS_BYTES, StacksRetention, read_retention
from streams.partition.process import OutputMessages, Processor
from streams.settings import StreamsSettings
from tests.data.handwritten import START, Raw, raw_id
from tests.examples import examples
from tests.waiting import wait_until

HOUR_NS = DAY_NS // 24
HOT = list(range(1, 21))
"""Leaves of the stacks that are used again and again."""

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""To shrink an example of these would take minutes."""


class Partition:
    """A partition of icestream.stacks that keeps so many bytes, and who announces in it."""

    def __init__(self, kept_bytes: int | None) -> None:
        self.processor = Processor(retention=StacksRetention(kept_bytes))
        self.log: list[bytes] = []
        self._batches = 0

    def process(self, leaves: list[int], start: int = START) -> OutputMessages:
        """Processes a batch of stacks with these leaves below two callers; one of them has ten leaves."""
        locations = [(1, 1), *((1, 1000 + leaf // 10) for leaf in leaves), *((1, 10**6 + leaf) for leaf in leaves)]
        stacks = [[1 + len(leaves) + row, 1 + row, 0] for row in range(len(leaves))]
        self._batches += 1
        raw = Raw([], stacks, locations, sequence=self._batches, start=start)
        outputs = self.processor.raw(raw.bytes(), raw_id(self._batches))
        self.log += outputs.stacks
        return outputs

    def addresses(self, last_bytes: int) -> set[tuple[int, ...]]:
        """The stacks that a reader of the last bytes can name: addresses, leaf first."""
        size, first = 0, len(self.log)
        while first and size + len(self.log[first - 1]) <= last_bytes:
            first -= 1
            size += len(self.log[first])
        nodes: dict[int, tuple[int, int]] = {}
        places: dict[int, int] = {}
        for columns in map(decode_stacks, self.log[first:]):
            edges = zip(columns.node_parent_id.tolist(), columns.node_location_id.tolist(), strict=True)
            nodes.update(zip(columns.node_id.tolist(), edges, strict=True))
            places.update(zip(columns.location_id.tolist(), columns.location_address.tolist(), strict=True))
        found = set()
        for node in nodes:
            path = []
            while node in nodes:
                node, location = nodes[node]
                path.append(places.get(location, 0))
            if not node:
                found.add(tuple(path))
        return found

    @property
    def written(self) -> int:
        return sum(map(len, self.log))


def stacks_of(leaves: list[int]) -> set[tuple[int, ...]]:
    return {(10**6 + leaf, 1000 + leaf // 10, 1) for leaf in leaves}


STEPS = st.lists(
    st.tuples(st.lists(st.sampled_from(HOT), min_size=1, unique=True), st.integers(0, 20)), min_size=10, max_size=25
)


@settings(max_examples=examples(0.2), phases=UNSHRUNK)
@given(STEPS)
def test_what_is_used_can_always_be_named_from_what_is_kept(steps: list[tuple[list[int], int]]) -> None:
    kept_bytes = 20_000
    partition, new = Partition(kept_bytes), 1000
    partition.process(HOT)
    for hot, more in steps * 3:
        leaves = [*hot, *range(new, new + more)]
        partition.process(leaves)
        new += more
        assert stacks_of(leaves) <= partition.addresses(kept_bytes)


@settings(max_examples=examples(0.2), phases=UNSHRUNK)
@given(STEPS)
def test_a_worker_announces_the_same_as_the_one_before(steps: list[tuple[list[int], int]]) -> None:
    first, again = Partition(3_000), Partition(3_000)
    for hot, more in steps:
        leaves = [*hot, *range(1000, 1000 + more)]
        assert first.process(leaves) == again.process(leaves)


@pytest.mark.parametrize("batch", [50, 2_000])
def test_more_than_can_be_kept_is_not_announced_again_and_again(batch: int) -> None:
    kept_bytes, stacks = 10_000, list(range(2_000))
    partition, once = Partition(kept_bytes), Partition(None)
    for one in (partition, once):
        for first in range(0, len(stacks), batch):
            one.process(stacks[first : first + batch])
    assert once.written > 8 * kept_bytes
    for _ in range(3):
        for first in range(0, len(stacks), batch):
            partition.process(stacks[first : first + batch])
    assert once.written < partition.written <= 2 * once.written + kept_bytes
    assert not partition.process(stacks).stacks


def test_without_a_limit_nothing_is_announced_twice_a_day() -> None:
    partition = Partition(None)
    assert partition.process(HOT).stacks
    for new in range(1000, 3000, 100):
        partition.process(list(range(new, new + 100)))
    assert not partition.process(HOT).stacks
    assert partition.process(HOT, START + DAY_NS).stacks


def test_what_was_forgotten_is_announced_again() -> None:
    partition = Partition(20_000)
    partition.process(HOT)
    assert not partition.process(HOT).stacks
    partition.processor.partition(0).announcer.forget()
    again = partition.process(HOT).stacks
    assert stacks_of(HOT) <= partition.addresses(sum(map(len, again)))


@pytest.mark.parametrize(
    ("kept_ns", "hours"),
    [(None, 24), (7 * DAY_NS, 24), (2 * DAY_NS, 24), (DAY_NS, 12), (10 * HOUR_NS, 4), (3 * HOUR_NS, 1), (1, 1)],
)
def test_an_announcement_counts_for_half_of_the_time_that_it_is_kept(kept_ns: int | None, hours: int) -> None:
    assert StacksRetention(ns=kept_ns).period_ns() == hours * HOUR_NS
    processor = Processor(retention=StacksRetention(ns=kept_ns))
    midnight = START - START % DAY_NS
    announced = [
        bool(processor.raw(Raw(sequence=1 + n, start=midnight + n * HOUR_NS).bytes(), raw_id(n)).stacks)
        for n in range(48)
    ]
    assert np.flatnonzero(announced).tolist() == list(range(0, 48, hours))


def test_the_in_process_broker_and_a_setting_say_what_is_kept(in_process_broker: KafkaSettings) -> None:
    in_process = StreamsSettings(kafka=in_process_broker.kafka)
    assert read_retention(in_process) == StacksRetention(IN_PROCESS_BYTES)
    assert read_retention(replace(in_process, stacks_kept_mb=7)) == StacksRetention(7_000_000)


def test_kafka_says_what_it_keeps(apache_kafka: KafkaSettings) -> None:
    own = StreamsSettings(kafka=apache_kafka.kafka)
    assert read_retention(own) == StacksRetention(None, 7 * DAY_NS)
    change = ConfigResource(
        ResourceType.TOPIC, STACKS,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (("retention.bytes", "50000000"), ("retention.ms", "3600000"))
        ],
    )  # fmt: skip
    admin = AdminClient(client_config(apache_kafka))
    for altered in admin.incremental_alter_configs([change]).values():
        altered.result(60)
    wait_until(lambda: read_retention(own) == StacksRetention(50_000_000, HOUR_NS))
    assert read_retention(replace(own, stacks_kept_mb=1)) == StacksRetention(1_000_000, HOUR_NS)
