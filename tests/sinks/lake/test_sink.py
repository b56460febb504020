"""The lake sink: types, each batch once, names once a month."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.lake.sink import LakeSink, in_delta_types
from sinks.runner.ranges import InFlight, MessageRange
from sinks.runner.runner import Runner
from sinks.tables.decode import Tables
from sinks.tables.stacks import StackTables
from tests.data.messages import PERIOD_NS
from tests.examples import examples
from tests.sinks.messages import activity_batch, sample_batch, stack_batch, tables
from tests.sinks.running import send
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # most tests write a lake


def write(
    sink: LakeSink, topic: str, first: int, *contents: Tables, partition: int = 0, nonce: str | None = None
) -> None:
    """Writes a range; with the `nonce` of an earlier one as another attempt at it."""
    last = first + len(contents) - 1
    offsets = InFlight(first, last, nonce) if nonce else InFlight.new(first, last)
    messages = [in_delta_types(content) for content in contents]
    sink.write(MessageRange("C", topic, partition, offsets, messages, nonce is not None))


def decoded(*sequences: int, **more: Any) -> list[Tables]:
    return [tables(SAMPLES, sample_batch(sequence, **more)) for sequence in sequences]


def activity(*sequences: int, **more: Any) -> list[Tables]:
    return [tables(ACTIVITY, activity_batch(sequence, **more)) for sequence in sequences]


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(DeltaTable(f"{folder}/{name}").to_pyarrow_table().to_pylist())


def test_all_tables_hold_what_came(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    write(sink, SAMPLES, 0, *decoded(1, 2))
    write(sink, STACKS, 0, tables(STACKS, stack_batch(3, ["main", "work"])))
    write(sink, ACTIVITY, 0, tables(ACTIVITY, activity_batch(1)))
    stored = rows(tmp_path, "samples")
    assert sum(row["value"] for row in stored) == 10 * PERIOD_NS
    assert {row["trace_id"] for row in stored} == {bytes(16), (1).to_bytes(16, "big"), (2).to_bytes(16, "big")}
    assert all(str(row["date"]) == f"{row['time']:%Y-%m-%d}" for row in stored)
    assert [dict(row["labels"]) for row in rows(tmp_path, "series")] == [{"host": "host-1", "service": "checkout"}]
    assert [line["function"] for row in rows(tmp_path, "locations") for line in row["lines"]] == ["main", "work"]
    assert sum(row["thread_cpu_ns"] for row in rows(tmp_path, "activity")) == 2_700_000
    assert rows(tmp_path, "spans")[0]["name"] == "GET /"


def test_the_largest_numbers_can_be_stored(tmp_path: Path) -> None:
    stacks = tables(STACKS, stack_batch(3, ["main"]))
    assert isinstance(stacks, StackTables)
    lines = pa.array([[{"function": "f", "file": "f.c", "line": 2**32 - 1, "start_line": 2**31}]], _LINES)
    column = stacks.locations.schema.get_field_index("lines")
    locations = stacks.locations.set_column(column, "lines", lines)
    ids = pa.array([2**64 - 1], pa.uint64())
    locations = locations.set_column(0, "location_id", ids).set_column(4, "address", ids)
    write(LakeSink(str(tmp_path)), STACKS, 0, StackTables(stacks.nodes, locations, 0))
    [stored] = rows(tmp_path, "locations")
    assert (stored["lines"][0]["line"], stored["lines"][0]["start_line"]) == (2**32 - 1, 2**31)
    assert (stored["location_id"], stored["address"]) == (-1, -1)


_LINES = pa.list_(
    pa.struct([("function", pa.string()), ("file", pa.string()), ("line", pa.uint32()), ("start_line", pa.uint32())])
)


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cuts=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8)), min_size=1, max_size=3))
def test_however_often_and_from_wherever_it_is_read_again_each_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("delta")
    contents = decoded(*range(1, 9))
    for first, last in [*((a, max(a + 1, b)) for a, b in cuts), (0, 8)]:
        write(LakeSink(str(folder)), SAMPLES, first, *contents[first:last])
    assert len(rows(folder, "samples")) == 40
    assert len(rows(folder, "batches")) == 8


def test_what_is_sent_twice_is_stored_once_by_whomever_and_wherever(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    write(sink, SAMPLES, 0, *decoded(1, 2, 2))
    write(sink, SAMPLES, 3, *decoded(2, 3))
    write(sink, ACTIVITY, 0, *activity(1, 2, 1))
    after_restart = LakeSink(str(tmp_path))
    write(after_restart, SAMPLES, 5, *decoded(1, 2, 3), *decoded(2, correction=True))
    write(after_restart, SAMPLES, 0, *decoded(3, 4), partition=1)
    write(after_restart, ACTIVITY, 3, *activity(2, 3))
    assert len(rows(tmp_path, "samples")) == 25
    assert len(rows(tmp_path, "activity")) == 9
    assert len(rows(tmp_path, "spans")) == 3
    assert len(rows(tmp_path, "batches")) == 8


def test_an_absurd_offset_of_a_source_hides_nothing_after_it(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    absurd = tables(SAMPLES, sample_batch(1))
    assert not isinstance(absurd, StackTables)
    object.__setattr__(absurd.batch, "offset", 2**62)
    write(sink, SAMPLES, 2**40, absurd)
    write(sink, SAMPLES, 0, *decoded(2, 3))  # the topic was made again: its offsets begin at 0
    assert len(rows(tmp_path, "samples")) == 15


@pytest.mark.parametrize("first", [True, False])
def test_a_frozen_sink_that_wakes_after_another_took_over_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    frozen, other = LakeSink(str(tmp_path)), LakeSink(str(tmp_path))
    if not first:
        write(frozen, SAMPLES, 0, *decoded(1))
    ask = frozen._stored

    def freeze(*arguments: Any) -> Any:
        stored = ask(*arguments)
        write(other, SAMPLES, 1, *decoded(2, 3), nonce="00000000000a")
        write(other, SAMPLES, 3, *decoded(4))
        return stored

    monkeypatch.setattr(frozen, "_stored", freeze)
    with pytest.raises((CommitFailedError, OSError)):
        write(frozen, SAMPLES, 1, *decoded(2, 3), nonce="00000000000a")
    frozen.failed()
    monkeypatch.undo()
    write(frozen, SAMPLES, 1, *decoded(2, 3), nonce="00000000000a")
    batches = 3 if first else 4
    assert len(rows(tmp_path, "samples")) == 5 * batches
    assert len(rows(tmp_path, "batches")) == batches


def test_names_are_stored_once_a_month_also_after_a_restart_and_again_with_better_lines(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    for first in range(3):
        write(sink, STACKS, first, tables(STACKS, stack_batch()))
        write(sink, SAMPLES, first, *decoded(first + 1))
    commits = DeltaTable(f"{tmp_path}/nodes").version()
    sink = LakeSink(str(tmp_path))
    write(sink, STACKS, 3, tables(STACKS, stack_batch()))
    write(sink, SAMPLES, 3, *decoded(4))
    assert DeltaTable(f"{tmp_path}/nodes").version() == commits
    assert [len(rows(tmp_path, name)) for name in ("nodes", "locations", "series")] == [2, 2, 1]
    write(sink, STACKS, 4, tables(STACKS, stack_batch(7, ["main", "work"])))
    assert [len(rows(tmp_path, name)) for name in ("nodes", "locations")] == [2, 4]


def test_names_are_stored_again_in_a_lake_that_was_deleted(tmp_path: Path) -> None:
    """A sink that runs takes no names for stored that went with the folder: it would leave them out for a month."""
    lake = tmp_path / "lake"
    sink = LakeSink(str(lake))

    def put(first: int) -> None:
        write(sink, STACKS, first, tables(STACKS, stack_batch()))
        write(sink, SAMPLES, first, *decoded(first + 1))

    put(0)
    shutil.rmtree(lake)
    with pytest.raises((DeltaError, OSError)):  # files that it knows are gone
        put(1)
    sink.failed()
    put(1)
    assert [len(rows(lake, name)) for name in ("nodes", "locations", "series", "batches")] == [2, 2, 1, 1]


class Absurd(LakeSink):
    """A message of its own kind cannot be stored, although it was decoded."""

    def decode(self, message: Message, cluster: str) -> Tables:
        if message.value() == sample_batch(2):
            raise OverflowError("Python int too large to convert to C long")
        return super().decode(message, cluster)


def test_what_cannot_be_stored_is_a_dead_letter_and_the_sink_goes_on(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    rejected: list[Message] = []
    stop = threading.Event()
    sink = Absurd(str(tmp_path))
    runner = Runner(
        sink, in_process_broker, lambda letters: rejected.extend(message for message, _ in letters), stop, flush_s=0.1
    )
    thread = threading.Thread(target=runner.run)
    thread.start()
    send(in_process_broker, SAMPLES, sample_batch(1), sample_batch(2), b"garbage", sample_batch(3), sample_batch(1))
    wait_until(lambda: DeltaTable.is_deltatable(f"{tmp_path}/batches") and len(rows(tmp_path, "batches")) == 2)
    wait_until(lambda: len(rejected) == 2)
    stop.set()
    thread.join(PATIENCE_S)
    assert len(rows(tmp_path, "samples")) == 10


@pytest.mark.slow
def test_tables_in_an_object_store(bucket: str) -> None:
    sink = LakeSink(f"{bucket}/lake")
    sink.check()
    write(sink, SAMPLES, 0, *decoded(1, 2))
    write(LakeSink(f"{bucket}/lake"), SAMPLES, 2, *decoded(2, 3))
    assert DeltaTable(f"{bucket}/lake/samples").to_pyarrow_table().num_rows == 15
