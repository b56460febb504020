"""Operations in icestream.flat: what is known when samples are published, and what becomes known later."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from icestream.kafka.clients import producer
from icestream.messages.samples import SampleColumns, decode_samples
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from standalone.supervisor.in_process_broker import PARTITIONS
from streams.flatten.flattener import _times
from streams.flatten.late_operations import LateOperations
from streams.flatten.names_reader import NamesReader
from streams.flatten.operations_reader import OperationsReader
from streams.flatten.sums import FlatKey, FlatSums, SumsByKey
from tests.changed_kafka import add_partitions
from tests.data import messages as builders
from tests.icestream.test_tail import send, stack_batch
from tests.streams.test_flatten import START_MS, Reader, running
from tests.waiting import PATIENCE_S, wait_until

INTERVAL_MS = 10_000
MINUTE_MS = 60_000


def activity(operations: Sequence[str], at_ms: int = START_MS, context: int = 1) -> bytes:
    """Intervals of the contexts `context`, `context` + 1 and so on, which belong to these operations."""
    contexts = [builders.context(context + row) for row in range(len(operations))]
    return builders.activity_batch(
        builders.batch_id(), at_ms * 10**6,
        {"interval_duration_ns": [10**6] * len(operations), "interval_context": list(range(len(operations)))},
        strings=["", *operations], context_operation=[row if name else 0 for row, name in enumerate(operations, 1)],
        **builders.contexts(contexts),
    )  # fmt: skip


def samples(offset: int, rows: Sequence[tuple[int, int, int]], start_ms: int = START_MS, label: str = "") -> bytes:
    """Samples of rows of time in milliseconds, stack ID, and context (0: none). Those of odd stacks have `label` as
    the label `span_name` of their series."""
    of_time, stacks, contexts = zip(*rows, strict=True) if rows else ((), (), ())
    named = {"span_name": label} if label else {}
    return builders.sample_batch(
        builders.source(builders.batch_id(), offset=offset), start_ms,
        {
            "sample_offset_ms": of_time, "sample_stack_id": stacks, "sample_context": contexts,
            "sample_value": [5_000_000] * len(rows), "sample_series": [stack % 2 for stack in stacks],
        },
        series=[builders.sample_series(labels) for labels in ({"service": "shop"}, {"service": "shop"} | named)],
        **builders.contexts([builders.context(number) for number in range(1, 7)]),
    )  # fmt: skip


_rows = st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 3), st.integers(0, 6)), max_size=20)
_rounds = st.lists(st.tuples(_rows, st.sets(st.integers(1, 6))), min_size=1, max_size=6)
"""The samples of a round, and the contexts whose operation becomes known before it."""


@given(_rounds, st.booleans(), st.sampled_from(("render", "GET /1")))
def test_sums_over_operations_are_those_without(
    rounds: list[tuple[list, set[int]]], forgetful: bool, label: str
) -> None:
    known: dict[bytes, str] = {}
    late = LateOperations(*([2] if forgetful else []))
    published: Counter[FlatKey] = Counter()
    plain: Counter[tuple[int, int]] = Counter()
    by_operation: Counter[str] = Counter()
    rows = [row for one, _ in rounds for row in one]
    last_known = set().union(*(new for _, new in rounds))
    for offset, (now, new) in enumerate(rounds):
        known |= {builders.context(number): f"GET /{number % 3}" for number in new}
        sums, corrected = one_round(late, decode_samples(samples(offset, now, label=label)), known)
        late.published(sums, corrected)
        add(published, sums.by_key)
    for time_ms, stack, context in rows:
        plain[stack, (START_MS + time_ms) // INTERVAL_MS * INTERVAL_MS] += 1
        by_operation[f"GET /{context % 3}" if context in last_known else label if stack % 2 else ""] += 1
    sums_without: Counter[tuple[int, int]] = Counter()
    sums_with: Counter[str] = Counter()
    for key, count in published.items():
        sums_without[key.stack_id, key.start_unix_milli] += count
        sums_with[key.operation] += count
    assert +sums_without == plain
    assert min(published.values(), default=0) >= 0
    if not forgetful:
        assert +sums_with == by_operation


def one_round(late: LateOperations, of_round: SampleColumns, known: dict[bytes, str]) -> tuple[FlatSums, list[bytes]]:
    def operation_of(context: bytes) -> str:
        return known.get(context, "")

    sums = FlatSums(INTERVAL_MS)
    sums.add(0, of_round, operation_of)
    return sums, late.correct(sums, operation_of)


def add(published: Counter[FlatKey], sums: SumsByKey) -> None:
    for key, flat_sum in sums.items():
        published[key] += flat_sum.samples
        assert flat_sum.value == flat_sum.samples * 5_000_000


def test_what_could_not_be_published_is_corrected_later() -> None:
    late, known = LateOperations(), dict[bytes, str]()
    first, nothing = one_round(late, decode_samples(samples(1, [(0, 2, 1)])), known)
    late.published(first, nothing)
    known[builders.context(1)] = "GET /"
    for _ in range(2):  # the first transaction is aborted
        second, corrected = one_round(late, decode_samples(samples(2, [])), known)
        assert sorted((key.operation, each.samples) for key, each in second.by_key.items()) == [("", -1), ("GET /", 1)]
    late.published(second, corrected)
    third, corrected = one_round(late, decode_samples(samples(3, [])), known)
    assert (third.by_key, corrected) == ({}, [])


def test_records_have_their_operation_and_what_comes_later_moves_them(
    broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.flatten.flattener._OPERATIONS_S", PATIENCE_S)  # else a slow machine makes two more
    monkeypatch.setattr("streams.flatten.operations_reader._KAFKA_S", PATIENCE_S)  # corrections
    send(broker, (STACKS, stack_batch().SerializeToString()), (ACTIVITY, b"\xff"), (ACTIVITY, activity(["GET /a"])))

    def by_operation(reader: Reader) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for record in reader.read():
            assert record["value"] == record["samples"] * 5_000_000
            assert record["samples"] != 0
            sums[record["operation"]] += record["samples"]
        return dict(+sums)

    with closing(Reader(broker)) as reader, running(broker, 200):
        send(broker, (SAMPLES, samples(1, [(1, 2, 1), (2, 2, 1), (3, 2, 2), (4, 2, 0)])))
        wait_until(lambda: by_operation(reader) == {"GET /a": 2, "": 2})
        # The request of the third sample becomes known; the fourth has none.
        send(broker, (ACTIVITY, activity(["GET /b"], context=2)), (SAMPLES, samples(2, [(5, 2, 2)])))
        wait_until(lambda: by_operation(reader) == {"GET /a": 2, "GET /b": 2, "": 1})
        assert sum(record["samples"] < 0 for record in reader.records) == 1


@pytest.fixture
def operations(in_process_broker: KafkaSettings) -> Iterator[OperationsReader]:
    reader = OperationsReader(in_process_broker, in_process=True)
    yield reader
    reader.close()


def test_activity_is_read_up_to_the_time_of_samples_and_a_clock_that_is_far_ahead_holds_up_nothing(
    in_process_broker: KafkaSettings, operations: OperationsReader
) -> None:
    sender = producer(in_process_broker)
    later = START_MS + 10 * MINUTE_MS
    for message, at_ms in (
        (activity(["of a clock that is wrong"], START_MS + 23 * 60 * MINUTE_MS, context=9), START_MS),
        (activity(["GET /now"]), START_MS),
        (activity(["GET /later"], later, context=2), later),
    ):
        sender.produce(ACTIVITY, message, partition=0, timestamp=at_ms)
    assert sender.flush(10) == 0

    def known(at_ms: int) -> list[str]:
        operations.read({0: (at_ms, at_ms)}, time.monotonic() + PATIENCE_S)
        return [operations.find(builders.context(number)) for number in (1, 2)]

    assert known(START_MS) == ["GET /now", ""]
    assert known(later) == ["GET /now", "GET /later"]


def test_without_an_answer_of_kafka_operations_are_not_known(
    operations: OperationsReader, in_process_broker: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        operations.read({4711: (START_MS, START_MS)}, time.monotonic() + PATIENCE_S)  # there is no such partition
    assert operations.find(builders.context(1)) == ""
    assert len([record for record in caplog.records if "operations are not known" in record.getMessage()]) == 1


def test_names_that_come_faster_than_they_are_read_hold_up_nothing(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(NamesReader(in_process_broker)) as names:
        monkeypatch.setattr(names, "_read", lambda timeout_s: True)
        assert not names.catch_up(time.monotonic() + 0.05)


def test_activity_of_samples_that_came_late_is_looked_for_near_their_arrival() -> None:
    arrived = Message(SAMPLES, partition=3, timestamp=(TIMESTAMP_LOG_APPEND_TIME, START_MS + 7 * 24 * 60 * MINUTE_MS))
    late = decode_samples(samples(1, [(0, 2, 1), (5, 2, 1)]))
    ((first, last),) = _times([(arrived, late)]).values()
    assert first == START_MS + (7 * 24 - 1) * 60 * MINUTE_MS
    assert last >= first


def test_a_stack_of_which_only_a_part_is_known_is_told_and_not_waited_for(in_process_broker: KafkaSettings) -> None:
    whole = stack_batch().SerializeToString()
    part = stack_batch()
    part.node_id[0] = 4712  # not the root
    with closing(NamesReader(in_process_broker)) as names:
        send(in_process_broker, (STACKS, part.SerializeToString()))
        began = time.monotonic()
        wait_until(lambda: names.wait_for({0, 2}, began + 2 * PATIENCE_S) == {2})
        assert time.monotonic() < began + PATIENCE_S
        send(in_process_broker, (STACKS, whole))
        wait_until(lambda: names.wait_for({0, 2}, time.monotonic() + 0.1) == set())


@pytest.mark.kafka
def test_names_of_a_partition_that_was_added_are_known_within_30_s(apache_kafka: KafkaSettings) -> None:
    with closing(NamesReader(apache_kafka)) as names:
        wait_until(lambda: names.catch_up(time.monotonic() + 1))
        add_partitions(apache_kafka, PARTITIONS + 1, STACKS)
        began = time.monotonic()
        sender = producer(apache_kafka)
        sender.produce(STACKS, stack_batch().SerializeToString(), partition=PARTITIONS)
        assert sender.flush(PATIENCE_S) == 0

        def known() -> bool:
            names.catch_up(time.monotonic() + 1)  # as while no samples come
            return bool(names.names.frames(2))

        wait_until(known, seconds=30 - (time.monotonic() - began))


def test_a_stack_that_nobody_announces_is_waited_for_once(in_process_broker: KafkaSettings) -> None:
    with closing(NamesReader(in_process_broker)) as names:
        assert names.wait_for({0, 4711}, time.monotonic() + 0.3) == {4711}
        began = time.monotonic()
        assert names.wait_for({4711}, began + 2 * PATIENCE_S) == {4711}
        assert time.monotonic() < began + PATIENCE_S
