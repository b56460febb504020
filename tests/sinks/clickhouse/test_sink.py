"""The ClickHouse sink on the embedded engine: what is stored, and that it is stored once."""

import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icestream.clickhouse.client import Clients
from icestream.times import DAY_NS
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.clickhouse.migrate import MigrationError
from sinks.clickhouse.sink import ClickHouseSink
from sinks.tables.decode import Tables
from tests.data.messages import PERIOD_NS
from tests.examples import examples
from tests.sinks.messages import START_MS, activity_batch, make_range, sample_batch, stack_batch, tables

TABLES = ("samples", "trace_samples", "batches", "activity")


class Crash(Exception):
    pass


def counts(client: Client) -> dict[str, int]:
    return {table: int(client.query(f"SELECT count() FROM {table}").result_rows[0][0]) for table in TABLES}


def decoded(*sequences: int, **more: Any) -> list[Tables]:
    return [tables(SAMPLES, sample_batch(sequence, **more)) for sequence in sequences]


def test_samples_are_stored_with_series_trace_and_the_batch_they_came_in(clients: Clients, client: Client) -> None:
    ClickHouseSink(clients).write(make_range(SAMPLES, decoded(1, 2)))
    assert counts(client) == {"samples": 10, "trace_samples": 4, "batches": 2, "activity": 0}
    row = client.query("SELECT service, host_id, pid, count, value FROM samples LIMIT 1").result_rows[0]
    assert row == ("checkout", "host-1", 100, 1, PERIOD_NS)
    traced = client.query(
        "SELECT hex(trace_id), hex(span_id), toUnixTimestamp64Milli(time) FROM trace_samples ORDER BY time"
    )
    assert traced.result_rows[0] == ("0" * 31 + "1", "0" * 15 + "1", START_MS + 5001)
    assert client.query("SELECT DISTINCT labels FROM series").result_rows == [
        ({"host": "host-1", "service": "checkout"},)
    ]
    kept = client.query("SELECT kind, collector, sequence, offset, rows, count, value FROM batches ORDER BY sequence")
    assert kept.result_rows[0] == ("samples", "host-1", 1, 1, 5, 5, 5 * PERIOD_NS)


def test_stacks_and_activity_are_stored(clients: Clients, client: Client) -> None:
    sink = ClickHouseSink(clients)
    sink.write(make_range(STACKS, [tables(STACKS, stack_batch())]))
    sink.write(make_range(STACKS, [tables(STACKS, stack_batch(3, ["main", "work"]))], first=1))
    sink.write(make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(1))]))
    named = client.query(
        "SELECT location_id, build_id, address, version, lines FROM locations FINAL ORDER BY location_id"
    )
    assert [tuple(row) for row in named.result_rows] == [
        (11, "gnu:aa", 4096, 3, [{"function": "main", "file": "app.c", "line": 7, "start_line": 1}]),
        (12, "gnu:aa", 4112, 3, [{"function": "work", "file": "app.c", "line": 8, "start_line": 1}]),
    ]
    assert client.query("SELECT node_id, parent_id, location_id FROM nodes FINAL ORDER BY node_id").result_rows == [
        (1, 0, 11), (2, 1, 12),
    ]  # fmt: skip
    assert client.query("SELECT sum(thread_cpu_ns), sum(duration_ns) FROM activity").result_rows == [
        (2_700_000, 3_000_000)
    ]
    assert client.query("SELECT name, hex(parent_span_id), end_time - start_time FROM spans").result_rows[0][:2] == (
        "GET /",
        "0" * 16,
    )


def test_a_range_written_again_changes_nothing(clients: Clients, client: Client) -> None:
    for retried in (False, True, True):
        ClickHouseSink(clients).write(make_range(SAMPLES, decoded(1, 2), retried=retried))
        ClickHouseSink(clients).write(make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(1))], retried=retried))
    assert counts(client) == {"samples": 10, "trace_samples": 4, "batches": 3, "activity": 3}
    spans = "SELECT service, operation, hex(span_id) FROM span_operations FINAL"
    assert client.query(spans).result_rows == [("checkout", "GET /", "0" * 15 + "1")]
    requests = "SELECT service, operation, hex(span_id), duration_ns FROM entry_spans FINAL"
    assert client.query(requests).result_rows == [("checkout", "GET /", "0" * 15 + "1", 10**9)]


def test_an_output_that_is_sent_twice_changes_nothing_also_within_one_range(clients: Clients, client: Client) -> None:
    sink = ClickHouseSink(clients)
    sink.write(make_range(SAMPLES, decoded(1, 2, 2)))
    sink.write(make_range(SAMPLES, decoded(2, 3), first=3))
    sink.write(make_range(SAMPLES, decoded(1, 2, 3), first=5))
    assert counts(client)["samples"] == 15
    assert counts(client)["batches"] == 3


def test_outputs_of_one_batch_and_its_corrections_are_not_taken_for_each_other(
    clients: Clients, client: Client
) -> None:
    sink = ClickHouseSink(clients)
    sink.write(make_range(SAMPLES, [*decoded(1, part=0, parts=2), *decoded(1, part=1, parts=2)]))
    sink.write(make_range(SAMPLES, decoded(1, rows=4, correction=True), first=2))
    assert counts(client)["samples"] == 14
    assert client.query("SELECT sum(count), sum(value) FROM samples").result_rows == [(10, 10 * PERIOD_NS)]
    assert client.query("SELECT sum(count) FROM trace_samples").result_rows == [(4 + 2,)]


@pytest.mark.parametrize(
    "lost", [("batches",), ("samples", "batches"), ("trace_samples", "batches"), ("batches", "series")]
)
def test_what_a_crash_left_out_is_filled_in(clients: Clients, client: Client, lost: tuple[str, ...]) -> None:
    """Leaves out inserts as a crash does: those tables end up as if the insert never reached them."""
    message_range = make_range(SAMPLES, decoded(1, 2))

    class Crashing(ClickHouseSink):
        def _insert(self, table: str, *args: Any) -> None:
            if table in lost:
                raise Crash
            super()._insert(table, *args)

    if "trace_samples" in lost:
        client.command("RENAME TABLE trace_samples TO aside")
    with pytest.raises(Exception):  # noqa: B017, PT011  (ours or the engine's)
        Crashing(clients).write(message_range)
    if "trace_samples" in lost:
        client.command("RENAME TABLE aside TO trace_samples")
    ClickHouseSink(clients).write(make_range(SAMPLES, decoded(1, 2), retried=True))
    assert counts(client) == {"samples": 10, "trace_samples": 4, "batches": 2, "activity": 0}


@pytest.mark.parametrize("late", ["samples", "spans", "activity", "batches"])
def test_an_insert_that_is_stored_although_its_answer_never_came_is_not_stored_again(
    clients: Clients, client: Client, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(ClickHouseSink):
        def _insert(self, table: str, *args: Any) -> None:
            super()._insert(table, *args)
            if table == late:
                raise TimeoutError("timed out")

    monkeypatch.setattr("tests.sinks.messages.START_MS", (time.time_ns() // DAY_NS - 1) * DAY_NS // 10**6)
    ranges = [make_range(SAMPLES, decoded(1, 2)), make_range(ACTIVITY, [tables(ACTIVITY, activity_batch(1))])]
    for message_range in ranges:
        with suppress(TimeoutError):
            Late(clients).write(message_range)
    for topic, messages in ((SAMPLES, decoded(1, 2)), (ACTIVITY, [tables(ACTIVITY, activity_batch(1))])):
        ClickHouseSink(clients).write(make_range(topic, messages, retried=True))
    assert counts(client) == {"samples": 10, "trace_samples": 4, "batches": 3, "activity": 3}
    sums = "sum(traces), sum(requests), sum(thread_cpu_ns), sum(count), sum(value) FROM recent_operations"
    of_minutes = (
        f"SELECT profile_type != '', operation, {sums} WHERE minutes = {{minutes:UInt8}} GROUP BY 1, 2 ORDER BY 1, 2"
    )
    for minutes in (1, 10, 60):
        rows = client.query(of_minutes, parameters={"minutes": minutes}).result_rows
        assert rows == [
            (False, "GET /", 1, 1, 2_700_000, 0, 0),
            (True, "", 2 if minutes < 60 else 0, 0, 0, 6, 6 * PERIOD_NS),  # no lists of traces by hour
            (True, "GET /", 0, 0, 0, 4, 4 * PERIOD_NS),
        ]


def test_rows_that_recent_operations_would_not_keep_are_not_summed_up(clients: Clients, client: Client) -> None:
    client.command("ALTER TABLE recent_operations REMOVE TTL")
    for topic, messages in ((SAMPLES, decoded(1, 2)), (ACTIVITY, [tables(ACTIVITY, activity_batch(1))])):
        ClickHouseSink(clients).write(make_range(topic, messages))
    assert counts(client) == {"samples": 10, "trace_samples": 4, "batches": 3, "activity": 3}
    assert client.query("SELECT count() FROM recent_operations").result_rows == [(0,)]


def test_rows_of_many_days_are_inserted_in_blocks_of_few_each_once(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.clickhouse.sink.MAX_DAYS", 2)
    days = [1 + 17_280 * day for day in range(5)]
    insert, blocks = clients.get().insert_arrow, list[int]()

    def insert_two(table: str, rows: pa.Table, **more: Any) -> Any:
        if table == "samples":
            blocks.append(len(pc.unique(pc.floor_temporal(rows["time"], unit="day"))))
            if len(blocks) == 3:
                raise Crash
        return insert(table, rows, **more)

    monkeypatch.setattr(clients.get(), "insert_arrow", insert_two)
    with pytest.raises(Crash):
        ClickHouseSink(clients).write(make_range(SAMPLES, decoded(*days)))
    ClickHouseSink(clients).write(make_range(SAMPLES, decoded(*days), retried=True))
    assert blocks == [2, 2, 1, 2, 2, 1]
    assert counts(client) == {"samples": 25, "trace_samples": 10, "batches": 5, "activity": 0}


def test_a_group_that_was_reset_stores_nothing_again_after_the_tokens_are_forgotten(
    clients: Clients, client: Client
) -> None:
    sink = ClickHouseSink(clients)
    sink.write(make_range(SAMPLES, decoded(1, 2), nonce="a" * 12))
    for table in TABLES:
        client.command(f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 0")
    sink.write(make_range(SAMPLES, decoded(1, 2), nonce="b" * 12))
    assert counts(client)["samples"] == 10


def test_without_tables_it_says_what_to_run(empty: Clients) -> None:
    with pytest.raises(MigrationError, match="icestream migrate"):
        ClickHouseSink(empty).check()


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sent=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=5), data=st.data())
def test_any_interleaving_of_resends_gives_the_same_tables(
    clients: Clients, client: Client, sent: list[list[int]], data: st.DataObject
) -> None:
    for table in (*TABLES, "series"):
        client.command(f"TRUNCATE TABLE {table}")
    sink, first = ClickHouseSink(clients), 0
    nonce = data.draw(st.binary(min_size=6, max_size=6)).hex()
    for sequences in sent:
        for retried in [False] + [True] * data.draw(st.integers(0, 2)):
            sink.write(make_range(SAMPLES, decoded(*sequences), first=first, retried=retried, nonce=nonce))
        first += len(sequences)
    all_sent = {sequence for sequences in sent for sequence in sequences}
    assert counts(client) == {
        "samples": 5 * len(all_sent), "trace_samples": 2 * len(all_sent), "batches": len(all_sent), "activity": 0,
    }  # fmt: skip
