"""Commits to the lake: one for each table, whatever the number of partitions, and each row once on bad days."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.lake.delta import Lake
from sinks.lake.sink import LakeSink, in_delta_types
from sinks.runner import range_commits
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import Tables
from tests.examples import examples
from tests.sinks.lake.test_sink import activity, decoded, rows
from tests.sinks.messages import stack_batch, tables
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

TABLES = ("samples", "activity", "spans", "batches", "nodes", "locations", "series")


class Crash(Exception):
    pass


def one_range(topic: str, partition: int, contents: Iterable[Tables], first: int = 0) -> MessageRange[Tables]:
    """The same arguments give another attempt at the same range."""
    messages = [in_delta_types(content) for content in contents]
    offsets = InFlight(first, first + len(messages) - 1, f"{first:012x}")
    return MessageRange("C", topic, partition, offsets, messages, False)


def flush(turn: int, partitions: Iterable[int] = range(3), days: tuple[int, ...] = (0,)) -> list[MessageRange[Tables]]:
    """What all partitions have in one flush: each one batch a day of samples and of activity, and stacks."""
    ranges = [one_range(STACKS, partition, [tables(STACKS, stack_batch())], turn) for partition in partitions]
    for partition in partitions:
        sequences = [1 + turn + 17_280 * day for day in days]
        host = f"host-{partition}"
        ranges.append(one_range(SAMPLES, partition, decoded(*sequences, host=host), turn * 1000))
        ranges.append(one_range(ACTIVITY, partition, activity(*sequences, host=host), turn * 1000))
    return ranges


def counts(folder: Path) -> list[int]:
    return [len(rows(folder, name)) for name in ("samples", "activity", "spans", "batches")]


def expected(batches: int) -> list[int]:
    """`batches`: of samples, and as many of activity."""
    return [5 * batches, 3 * batches, batches, 2 * batches]


def dying(sink: LakeSink, monkeypatch: pytest.MonkeyPatch, commit: int) -> None:
    """Ends a write of the sink before its commit of this number, from 1."""
    append, calls = sink._lake.append, [0]

    def mortal(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == commit:
            raise Crash
        append(*arguments)

    monkeypatch.setattr(sink._lake, "append", mortal)


def test_a_flush_of_many_partitions_is_one_commit_to_each_table(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    for turn in range(2):
        sink.write(*flush(turn, range(7)))
    versions = {name: DeltaTable(f"{tmp_path}/{name}").version() for name in TABLES}
    once = dict.fromkeys(("nodes", "locations", "series"), 1)
    assert versions == dict.fromkeys(TABLES, 2) | once
    assert counts(tmp_path) == expected(14)


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(commit=st.integers(1, 9), split=st.integers(0, 6), days=st.sampled_from([(0,), (0, 3, 50, 90)]))
def test_after_a_crash_any_owners_complete_their_own_ranges(
    tmp_path_factory: pytest.TempPathFactory, commit: int, split: int, days: tuple[int, ...]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    first, more = LakeSink(str(folder)), len(days)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_commits, "MAX_DAYS", 2)
        first.write(*flush(0))
        dying(first, patch, commit)
        with contextlib.suppress(Crash):
            first.write(*flush(1, days=days))
        begun = flush(1, days=days)
        for owner in (begun[split:], begun[:split]):
            here = {(r.topic, r.partition) for r in owner}
            later = [r for r in flush(2) if (r.topic, r.partition) in here]
            for ranges in (owner, later, owner):
                LakeSink(str(folder)).write(*ranges)
    assert counts(folder) == expected(3 + 3 * more + 3)


CHILD = """
import os, signal, sys
from sinks.lake import delta
from sinks.lake.sink import LakeSink
from tests.sinks.test_lake_commits import flush

folder, deadly = sys.argv[1], int(sys.argv[2])
real, calls = delta.write_deltalake, 0

def mortal(*args, **more):
    global calls
    calls += 1
    if calls == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **more)
    if calls == -deadly:
        os.kill(os.getpid(), signal.SIGKILL)

delta.write_deltalake = mortal
sink = LakeSink(folder)
for turn in range(2):
    sink.write(*flush(turn))
"""


# The test above ends a sink before whichever commit, and is quicker: two kills show that they are like its exception.
@pytest.mark.parametrize("deadly", [-4, 6, pytest.param(-8, marks=pytest.mark.soak)])
def test_kill_9_before_or_after_any_commit_neither_loses_nor_doubles(tmp_path: Path, deadly: int) -> None:
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), str(deadly)], cwd=root).returncode == -9
    for turn in range(2):
        for message_range in flush(turn):
            LakeSink(str(tmp_path)).write(message_range)
    assert counts(tmp_path) == expected(6)


def test_two_sinks_that_commit_at_once_store_each_row_once(tmp_path: Path) -> None:
    LakeSink(str(tmp_path)).write(*flush(0, range(4)))
    failed: list[Exception] = []

    def work(partitions: range) -> None:
        sink = LakeSink(str(tmp_path))
        for turn in range(1, 6):
            for _ in range(100):  # each conflict takes a commit of the other, which has fewer
                try:
                    sink.write(*flush(turn, partitions))
                    break
                except (DeltaError, OSError) as error:
                    sink.failed()
                    failed.append(error)

    threads = [threading.Thread(target=work, args=(partitions,)) for partitions in (range(2), range(2, 4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert counts(tmp_path) == expected(24), failed


def test_a_rebalance_between_two_commits_of_a_frozen_sink_stores_each_row_once(tmp_path: Path) -> None:
    frozen, other = LakeSink(str(tmp_path)), LakeSink(str(tmp_path))
    frozen.write(*flush(0))
    append = frozen._lake.append

    def freeze(name: str, *arguments: Any) -> None:
        if name == "batches":
            other.write(*flush(1, [1]))
            other.write(*flush(2, [1]))
        append(name, *arguments)

    frozen._lake.append = freeze  # type: ignore[method-assign]
    with pytest.raises(CommitFailedError):
        frozen.write(*flush(1))
    frozen.failed()
    frozen._lake.append = append  # type: ignore[method-assign]
    assert counts(tmp_path)[3] == 2 * (3 + 2)
    frozen.write(*flush(1, [0, 2]))
    frozen.write(*flush(1))  # before it knows that it lost a partition
    assert counts(tmp_path) == expected(3 + 3 + 1)


def test_a_batch_in_ranges_of_two_partitions_is_stored_once_also_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = [one_range(SAMPLES, partition, decoded(1, 2)) for partition in range(2)]
    sink = LakeSink(str(tmp_path))
    dying(sink, monkeypatch, 3)  # series, samples, batches
    with pytest.raises(Crash):
        sink.write(*ranges)
    for message_range in ranges:
        LakeSink(str(tmp_path)).write(message_range)
    assert len(rows(tmp_path, "samples")) == 10


def test_a_commit_touches_a_bounded_number_of_days_of_times_spread_over_years(tmp_path: Path) -> None:
    days = tuple(range(0, 3 * 365, 9))
    sink = LakeSink(str(tmp_path))
    folders: list[int] = []
    append = sink._lake.append

    def count(name: str, block: pa.Table, *more: Any) -> None:
        folders.append(len(block.column("month" if "month" in block.column_names else "date").unique()))
        append(name, block, *more)

    sink._lake.append = count  # type: ignore[method-assign]
    sink.write(*flush(0, [0, 1], days))
    assert max(folders) <= range_commits.MAX_DAYS
    assert counts(tmp_path) == expected(2 * len(days))
    assert len(folders) < 2 * 4 * 3 * 365 / range_commits.MAX_DAYS


def test_while_an_object_store_does_not_answer_other_threads_run(dead_object_store: socket.socket) -> None:
    ran = threading.Event()

    def run_and_hang_up() -> None:
        connection, _ = dead_object_store.accept()
        for _ in range(6):
            time.sleep(0.01)
        ran.set()
        connection.close()
        dead_object_store.close()

    thread = threading.Thread(target=run_and_hang_up, daemon=True)
    thread.start()
    lake = Lake("s3://profiles/lake", {"timeout": f"{PATIENCE_S:.0f}s", "max_retries": "0"})
    with pytest.raises((OSError, DeltaError)):
        lake.open("batches")
    assert ran.is_set()
    thread.join(PATIENCE_S)
