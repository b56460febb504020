"""Jobs correct the lake as they correct ClickHouse: the same rows are in both afterwards."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from icestream.labels.request_labels import RequestLabels
from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from jobs.backfill import backfill
from jobs.lake import rows as lake_rows
from jobs.lake.rows import JobLake
from jobs.replay import ReplayReport, replay
from sinks.lake.sink import LakeSink, in_delta_types
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode
from streams.partition.process import Operators
from tests.data.windows import window
from tests.jobs.stored import END, REQUEST_LABELS, T0, Stored, make_stored
from tests.jobs.test_backfill import THIRD, doubled
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


class Cut(Exception):
    """Stands for a kill."""


@pytest.fixture
def stored(client: Client, tmp_path: Path) -> Stored:
    made = make_stored(client, tmp_path)
    made.lake = JobLake(str(tmp_path / "lake"), lambda: None)
    to_lake(made, made.outputs)
    return made


def to_lake(stored: Stored, outputs: list[tuple[str, bytes]], base: int = 0) -> None:
    """Stores what the stream processors published, as a sink of its own would."""
    assert stored.lake is not None
    sink, sets = LakeSink(stored.lake.uri), RequestLabels(REQUEST_LABELS)
    for topic in (STACKS, SAMPLES, ACTIVITY):
        values = [value for of, value in outputs if of == topic]
        messages = [
            in_delta_types(decode(value, MessageId("C", topic, 0, base + i), sets=sets))
            for i, value in enumerate(values)
        ]
        offsets = InFlight(base, base + len(values) - 1, random.Random(base).randbytes(6).hex())
        sink.write(MessageRange("C", topic, 0, offsets, messages, False))


def table(stored: Stored, name: str) -> DeltaTable:
    assert stored.lake is not None
    return DeltaTable(f"{stored.lake.uri}/{name}")


def in_lake(stored: Stored) -> dict[str, Any]:
    """The sums of samples, the intervals, spans, names and batches."""
    rows = {name: table(stored, name).to_pyarrow_table().to_pylist()
            for name in ("samples", "activity", "spans", "nodes", "batches")}  # fmt: skip
    samples: dict[tuple[Any, ...], list[int]] = {}
    for row in rows["samples"]:
        key = (row["series_id"] % 2**64, row["host_id"], row["time"].timestamp(), row["pid"], row["tid"],
               row["stack_id"] % 2**64, row["trace_id"].hex(), row["span_id"].hex())  # fmt: skip
        sums = samples.setdefault(key, [0, 0])
        sums[0], sums[1] = sums[0] + row["count"], sums[1] + row["value"]
    return {
        "samples": sorted((*key, *sums) for key, sums in samples.items() if any(sums)),
        "activity": sorted((row["trace_id"].hex(), row["host_id"], row["start_time"], row["thread_cpu_ns"])
                           for row in rows["activity"]),
        "spans": {(row["trace_id"].hex(), row["span_id"].hex(), row["name"], row["operation"], row["status"])
                  for row in rows["spans"]},
        "nodes": {row["node_id"] for row in rows["nodes"]},
        "batches": sorted((row["kind"], row["collector"], row["started_unix_nano"], row["sequence"], row["rows"])
                          for row in rows["batches"] if row["kind"] != "corrections"),
    }  # fmt: skip


def in_clickhouse(stored: Stored) -> dict[str, Any]:
    """What the lake must have of it."""
    query = stored.client.query
    samples = query(
        "SELECT series_id, host_id, toUnixTimestamp64Milli(time) / 1000, pid, tid, stack_id, lower(hex(trace_id)),"
        " lower(hex(span_id)), sum(count) AS c, sum(value) AS v FROM samples GROUP BY ALL HAVING c != 0 OR v != 0"
    ).result_rows
    activity = query(
        "SELECT lower(hex(trace_id)), host_id, toUnixTimestamp64Nano(start_time), thread_cpu_ns FROM activity"
    ).result_rows
    spans = query(
        "SELECT lower(hex(trace_id)), lower(hex(span_id)), name, operation, status FROM spans FINAL"
    ).result_rows
    batches = query(
        "SELECT kind, collector, started_unix_nano, sequence, rows FROM batches WHERE kind != 'corrections'"
    ).result_rows
    return {
        "samples": sorted(map(tuple, samples)), "activity": sorted(map(tuple, activity)),
        "spans": set(map(tuple, spans)), "batches": sorted(map(tuple, batches)),
    }  # fmt: skip


def restored_in_lake(report: ReplayReport) -> dict[str, int]:
    """How much of which kind was restored."""
    assert report.lake is not None
    return {name: count for name, count in report.lake.restored.items() if count}


def check_same(stored: Stored) -> dict[str, Any]:
    """Both stores have the same; returns what the lake has."""
    lake, expected = in_lake(stored), in_clickhouse(stored)
    assert {name: lake[name] for name in expected} == expected
    return lake


def test_a_backfill_replaces_the_same_range_in_both_stores(stored: Stored) -> None:
    before = check_same(stored)
    start, end = T0 + THIRD, T0 + 2 * THIRD
    backfill(stored.work("backfill", start, end, Operators(change=doubled)))
    after = check_same(stored)
    assert after["samples"] != before["samples"]
    assert {name: rows for name, rows in after.items() if name != "samples"} == {
        name: rows for name, rows in before.items() if name != "samples"
    }
    backfill(stored.work("backfill", start, end))
    assert check_same(stored) == before
    to_lake(stored, stored.outputs, base=10_000)  # delivered again
    assert check_same(stored) == before


def test_a_replay_restores_what_the_lake_lacks_and_leaves_alone_what_is_complete(stored: Stored) -> None:
    before = check_same(stored)
    versions = [table(stored, name).version() for name in ("samples", "activity", "spans", "nodes", "batches")]
    assert restored_in_lake(replay(stored.work("replay"))) == {}
    assert [table(stored, name).version() for name in ("samples", "activity", "spans", "nodes", "batches")] == versions
    for name, predicate in (("samples", "tid = 8"), ("activity", "host_id = 'host-1'"), ("spans", "true"),
                            ("nodes", "node_id < 0"), ("batches", "sequence > 4")):  # fmt: skip
        table(stored, name).delete(predicate)
    dry = replay(stored.work("replay", dry_run=True))
    assert restored_in_lake(dry).keys() == {"samples", "activity", "spans", "nodes", "batches"}
    assert in_lake(stored) != before
    assert restored_in_lake(replay(stored.work("replay"))) == restored_in_lake(dry)
    assert check_same(stored) == before


def test_a_replay_corrects_what_spans_say(stored: Stored) -> None:
    before = check_same(stored)
    table(stored, "spans").update({"status": "'error'"})
    assert in_lake(stored) != before
    replay(stored.work("replay"))
    assert check_same(stored) == before


@pytest.mark.parametrize(
    ("name", "changed", "predicate"),
    [
        ("samples", {"profile_type": "'memory:inuse_space:bytes:space:bytes'"}, "tid = 8"),
        pytest.param("activity", {"operation": "'GET /old'"}, "host_id = 'host-1'", marks=pytest.mark.soak),
        ("activity", {"entry_span_id": "X'0102030405060708'"}, "host_id = 'host-1'"),
    ],
)
def test_a_replay_corrects_rows_that_the_lake_has_under_another_name(
    stored: Stored, name: str, changed: dict[str, str], predicate: str
) -> None:
    [column] = changed

    def sums() -> Counter[Any]:
        found: Counter[Any] = Counter()
        for row in table(stored, name).to_pyarrow_table().to_pylist():
            found[row[column]] += row.get("count", 1)
        return found

    before = sums()
    table(stored, name).update(changed, predicate=predicate)
    assert sums() != before
    assert restored_in_lake(replay(stored.work("replay"))).keys() == {name}
    assert sums() == before
    check_same(stored)


def test_what_arrives_while_a_slice_is_replaced_in_the_lake_stays_once(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = window(T0, 3, host=0, started_unix_nano=2, seed=1)
    write, refused = lake_rows.write_deltalake, []

    def arrive_first(table: DeltaTable, rows: Any, **options: Any) -> None:
        if not refused:
            outputs = stored.process(late, host=0)
            stored.receive_outputs(outputs)
            to_lake(stored, outputs, base=20_000)
            refused.append(True)
            with pytest.raises(CommitFailedError):
                write(table, rows, **options)
            raise CommitFailedError
        write(table, rows, **options)

    monkeypatch.setattr(lake_rows, "write_deltalake", arrive_first)
    monkeypatch.setattr(lake_rows, "_PAUSES_S", (0.0, 0.0))
    backfill(stored.work("backfill"))
    assert refused
    lake = check_same(stored)
    assert ("samples", "host-0", 2, 3, 200) in lake["batches"]


# Before the first commit, or after two; after one is like after two.
@pytest.mark.parametrize("call", [0, *(pytest.param(call, marks=pytest.mark.soak) for call in (1, 2))])
def test_a_backfill_that_was_killed_before_a_commit_to_the_lake_continues(
    stored: Stored, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = check_same(stored)
    stored.client.command("TRUNCATE TABLE samples")
    table(stored, "samples").delete("tid = 9")
    write, calls = lake_rows.write_deltalake, [0]

    def cut(*arguments: Any, **options: Any) -> None:
        calls[0] += 1
        if calls[0] > call:
            raise Cut
        write(*arguments, **options)

    monkeypatch.setattr(lake_rows, "write_deltalake", cut)
    with pytest.raises(Cut):
        backfill(stored.work("backfill"))
    monkeypatch.undo()
    assert backfill(stored.work("backfill")).resumed
    assert check_same(stored) == before


def test_batches_that_only_the_lake_has_are_protected(stored: Stored) -> None:
    before = check_same(stored)
    archived = sorted((stored.archive / "icestream.raw").rglob("*.parquet"))
    archived[0].unlink()
    stored.client.command("TRUNCATE TABLE batches")
    report = backfill(stored.work("backfill", T0, END, allow_missing=True))
    assert report.missing == 1
    assert in_lake(stored)["samples"] == before["samples"]
