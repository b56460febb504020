"""The Delta tables: types, and each row once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.parquet import ParquetSink, compact
from sinks.ranges import InFlight, MessageRange
from sinks.tables.decode import Tables
from tests.data.messages import PERIOD_NS
from tests.sinks.messages import activity_batch, sample_batch, stack_batch, tables


def write(sink: ParquetSink, topic: str, first: int, *contents: Any, partition: int = 0) -> None:
    offsets = InFlight(first, first + len(contents) - 1, "0" * 12)
    sink.write(MessageRange("C", topic, partition, offsets, list(enumerate(contents, first)), False))


def decoded(*sequences: int, **more: Any) -> list[Tables]:
    return [tables(SAMPLES, sample_batch(sequence, **more)) for sequence in sequences]


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(DeltaTable(f"{folder}/{name}").to_pyarrow_table().to_pylist())


def test_all_tables_hold_what_came(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
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


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8)), min_size=1, max_size=4))
def test_however_often_and_from_wherever_it_is_read_again_each_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("delta")
    contents = decoded(*range(1, 9))
    for first, last in [*((a, max(a + 1, b)) for a, b in cuts), (0, 8)]:
        # A reader that starts again at `first` has everything before committed: it read that at some time.
        write(ParquetSink(str(folder)), SAMPLES, 0, *contents[:first]) if first else None
        write(ParquetSink(str(folder)), SAMPLES, first, *contents[first:last])
    assert len(rows(folder, "samples")) == 40


def test_what_a_stream_processor_sends_twice_is_stored_once(tmp_path: Path) -> None:
    sink = ParquetSink(str(tmp_path))
    write(sink, SAMPLES, 0, *decoded(1, 2, 2))
    write(sink, SAMPLES, 3, *decoded(2, 3))
    write(ParquetSink(str(tmp_path)), SAMPLES, 5, *decoded(1, 2, 3), *decoded(2, correction=True))
    assert len(rows(tmp_path, "samples")) == 20
    compact(str(tmp_path))
    write(ParquetSink(str(tmp_path)), SAMPLES, 5, *decoded(1, 2, 3))
    assert len(rows(tmp_path, "samples")) == 20
    assert len(DeltaTable(f"{tmp_path}/samples").file_uris()) == 1


CHILD = """
import os, signal, sys
from sinks import parquet
from tests.sinks.test_parquet import decoded, write

folder, deadly = sys.argv[1], int(sys.argv[2])
real, calls = parquet.write_deltalake, 0

def mortal(*args, **more):
    global calls
    calls += 1
    if calls == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **more)
    if calls == -deadly:
        os.kill(os.getpid(), signal.SIGKILL)

parquet.write_deltalake = mortal
for first in range(0, 6, 2):
    write(parquet.ParquetSink(folder), "icestream.samples", first, *decoded(first + 1, first + 2))
"""


@pytest.mark.parametrize("deadly", [1, -1, 2, -2, 4, -4])
def test_kill_9_before_or_after_any_commit_neither_loses_nor_doubles(tmp_path: Path, deadly: int) -> None:
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), str(deadly)], cwd=root).returncode == -9
    assert subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), "0"], cwd=root).returncode == 0
    assert len(rows(tmp_path, "samples")) == 30
