"""A lake for years: the queries of its page, joined files, and days that go."""

import os
import re
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.lake.delta import Lake
from sinks.lake.sink import LakeSink
from sinks.lake.stacks import build_stacks
from sinks.lake.upkeep import compact, delete_old_days
from tests.data.messages import PERIOD_NS
from tests.sinks.lake.test_sink import activity, decoded, rows, write
from tests.sinks.messages import START_MS, sample_batch, stack_batch, tables

pytestmark = pytest.mark.slow  # most tests write a lake, and start DuckDB or polars
PAGE = Path(__file__).parents[2] / "docs" / "lake.md"
TODAY = date.fromtimestamp(START_MS / 1000)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    sink = LakeSink(str(tmp_path))
    for i in range(4):
        write(sink, SAMPLES, 2 * i, *decoded(2 * i + 1, 2 * i + 2))
    write(sink, SAMPLES, 8, tables(SAMPLES, sample_batch(1, correction=True, rows=4)))
    write(sink, STACKS, 0, tables(STACKS, stack_batch()), tables(STACKS, stack_batch(3, ["main", "work"])))
    write(sink, ACTIVITY, 0, *activity(1, 2))
    compact(Lake(str(tmp_path)), small_files=2)
    build_stacks(Lake(str(tmp_path)))
    return tmp_path


def queries(kind: str) -> list[str]:
    return re.findall(rf"^```python {kind}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def results(code: str, lake: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"lake": str(lake)}
    exec(code, names)
    return names


@pytest.mark.soak  # the queries of what functions call, below, are run by both
def test_duckdb_gives_the_functions_with_the_most_cpu(lake: Path) -> None:
    query, *_ = queries("duckdb")
    top = dict(results(query, lake)["top"])
    assert set(top) == {"main", "work", "?"}
    assert sum(top.values()) == pytest.approx(40 * PERIOD_NS / 1e9)


@pytest.mark.soak  # the queries of what functions call, below, are run by both
def test_polars_gives_the_cpu_of_services_and_operations(lake: Path) -> None:
    by_service, by_operation, _ = queries("polars")
    [service] = results(by_service, lake)["cpu_by_service"].to_dicts()
    assert service == {"service": "checkout", "cpu_s": pytest.approx(40 * PERIOD_NS / 1e9)}
    [operation] = results(by_operation, lake)["operations"].to_dicts()
    assert operation == {"name": "GET /", "requests": 2, "thread_cpu_s": pytest.approx(2 * 2_700_000 / 1e9)}


def test_the_cpu_of_functions_with_what_they_call_is_that_of_a_walk_up_the_tree(lake: Path) -> None:
    parents = {row["node_id"]: row["parent_id"] for row in rows(lake, "nodes")}
    named = {1: "main", 2: "work"}
    walked: Counter[str] = Counter()
    for row in rows(lake, "samples"):
        functions, node = set(), row["stack_id"]
        while node:
            functions.add(named.get(node, "[unresolved stack]"))
            node = parents.get(node, 0)
        walked.update(dict.fromkeys(functions, row["value"]))
    expected = {function: pytest.approx(value / 1e9) for function, value in walked.items()}
    assert set(expected) == {"main", "work", "[unresolved stack]"}
    assert dict(results(queries("duckdb")[1], lake)["cumulative"]) == expected
    assert dict(results(queries("polars")[2], lake)["cumulative"].rows()) == expected


def test_duckdb_has_the_views_of_clickhouse(lake: Path) -> None:
    write(LakeSink(str(lake)), SAMPLES, 9, tables(SAMPLES, sample_batch(10, span_name="render")))
    names = results(queries("duckdb")[2], lake)
    frames = {1: ["main"], 2: ["main", "work"]}
    flat: Counter[str] = Counter()
    cumulative: Counter[str] = Counter()
    for row in rows(lake, "samples"):
        functions = frames.get(row["stack_id"], ["[unresolved stack]"])
        flat[functions[-1]] += row["value"]
        cumulative.update(dict.fromkeys(functions, row["value"]))
    expected = {(name, flat[name], cumulative[name]) for name in cumulative}
    assert len(expected) == 3
    assert set(names["functions"]) == expected

    operation_of = {(row["trace_id"], row["span_id"]): row["operation"] for row in rows(lake, "activity")}
    span_name_of = {row["series_id"]: dict(row["labels"]).get("span_name", "") for row in rows(lake, "series")}
    sums: dict[str, list[int]] = {}
    for row in rows(lake, "samples"):
        of_span = operation_of.get((row["trace_id"], row["span_id"]), "")
        of = sums.setdefault(of_span or span_name_of[row["series_id"]], [0, 0, 0])
        of[0] += row["value"]
        of[1] += row["count"]
    for row in rows(lake, "activity"):
        sums.setdefault(row["operation"], [0, 0, 0])[2] += row["thread_cpu_ns"]
    assert set(sums) == {"", "GET /", "render"}
    assert set(names["operations"]) == {("checkout", operation, *values) for operation, values in sums.items()}

    days = "DATE '2026-02-02', DATE '2026-02-02'"
    traced = f"SELECT labels['host'], trace_id, sum(value)::BIGINT FROM profile_samples({days}) GROUP BY ALL"
    by_trace: Counter[str] = Counter()
    for row in rows(lake, "samples"):
        by_trace[row["trace_id"].hex() if any(row["trace_id"]) else ""] += row["value"]
    assert set(names["database"].sql(traced).fetchall()) == {("host-1", trace, v) for trace, v in by_trace.items()}


def test_reading_files_by_a_pattern_counts_twice_as_the_page_says(lake: Path) -> None:
    counted = duckdb.sql(f"SELECT sum(value) FROM read_parquet('{lake}/samples/**/*.parquet')").fetchall()
    assert counted == [(2 * 40 * PERIOD_NS,)]


def test_every_column_is_on_the_page(lake: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("samples", "activity", "spans", "nodes", "locations", "series", "stacks"):
        [row] = re.findall(rf"^\| `{name}` .*", page, re.MULTILINE)
        columns = set(re.findall(r"`(\w+)`", row.split("|")[4]))
        assert columns == {field.name for field in DeltaTable(f"{lake}/{name}").schema().fields} - {"date", "month"}


def test_small_files_are_joined_by_their_number_and_what_was_stored_is_still_known(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    for i in range(5):
        write(sink, SAMPLES, i, *decoded(i + 1))
    lake = Lake(str(tmp_path))
    compact(lake, small_files=6)
    assert len(DeltaTable(f"{tmp_path}/samples").file_uris()) == 5
    compact(lake, small_files=5, most_s=0.0)
    assert len(DeltaTable(f"{tmp_path}/samples").file_uris()) == 5
    compact(lake, small_files=5)
    assert len(DeltaTable(f"{tmp_path}/samples").file_uris()) == 1
    write(sink, SAMPLES, 5, *decoded(5, 6))
    assert len(rows(tmp_path, "samples")) == 30


def test_files_and_log_entries_that_nothing_refers_to_go_after_a_week(lake: Path) -> None:
    opened = Lake(str(lake))
    files, log = lake / "samples", lake / "samples" / "_delta_log"
    kept, entries = set(files.rglob("date=*/*.parquet")), set(log.glob("*.json"))
    used = {Path(uri) for uri in DeltaTable(str(files)).file_uris()}
    assert used < kept
    delete_old_days(opened, 0, TODAY)
    assert set(files.rglob("date=*/*.parquet")) == kept
    assert set(log.glob("*.json")) == entries
    before = time.time() - 8 * 86_400
    for path in kept | entries:
        os.utime(path, (before, before))
    delete_old_days(opened, 0, TODAY)
    assert set(log.glob("*.json")) < entries
    assert used <= set(files.rglob("date=*/*.parquet"))
    assert len(rows(lake, "samples")) == 44


def test_days_go_when_told_and_names_with_the_last_day_of_their_month(lake: Path) -> None:
    opened = Lake(str(lake))
    delete_old_days(opened, 0, TODAY + timedelta(days=5000))
    delete_old_days(opened, 30, TODAY + timedelta(days=30))
    assert len(rows(lake, "samples")) == 44
    delete_old_days(opened, 2, TODAY + timedelta(days=3))
    assert [len(rows(lake, name)) for name in ("samples", "activity", "spans")] == [0, 0, 0]
    assert [len(rows(lake, name)) for name in ("batches", "nodes", "series")] == [11, 2, 1]
    delete_old_days(opened, 2, TODAY + timedelta(days=60))
    assert [len(rows(lake, name)) for name in ("batches", "nodes", "locations", "series")] == [0, 0, 0, 0]
