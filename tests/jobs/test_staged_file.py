"""Staged rows in the files of tables of the embedded engine."""

import resource
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from jobs.fence import NO_FENCE
from jobs.staging import Staging
from jobs.time_range import TimeRange
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]


def rows(hosts: list[str]) -> pa.Table:
    host_id = pa.array(hosts).dictionary_encode()
    return pa.table({"host_id": host_id, "value": pa.array(range(len(hosts)), pa.int64())})


def test_rows_of_several_portions_are_read_from_one_file_which_goes_with_its_table(client: Client) -> None:
    staging = Staging(client, "test", TimeRange(0, 10**9), NO_FENCE)
    staging.make()
    table = staging.table("samples")
    read = f"SELECT host_id, value, service FROM {table} ORDER BY ALL"
    assert client.query(read).result_rows == []
    staging.insert("samples", rows(["a", "b"]))
    staging.insert("samples", rows(["c", "b", "a"]))
    assert client.query(read).result_rows == [("a", 0, ""), ("a", 2, ""), ("b", 1, ""), ("b", 1, ""), ("c", 0, "")]
    ((path,),) = client.query(f"SELECT data_paths[1] FROM system.tables WHERE name = '{table}'").result_rows
    assert Path(path).exists()
    staging.drop()
    assert not Path(path).exists()


@pytest.mark.parametrize("reports", [1, 3])
def test_of_a_span_that_was_reported_several_times_the_last_report_counts(client: Client, reports: int) -> None:
    staging = Staging(client, "test", TimeRange(0, 10**9), NO_FENCE)
    staging.make()
    # Each report is in a portion of its own, as those of several workers are, and larger than what is read at once.
    ids = [number.to_bytes(16, "big") for number in range(100_000)]
    for report in range(reports):
        staging.insert(
            "spans",
            pa.table(
                {
                    "trace_id": pa.array(ids, pa.binary(16)),
                    "span_id": pa.array([one[8:] for one in ids], pa.binary(8)),
                    "service": pa.array([str(report)] * len(ids)).dictionary_encode(),
                    "start_time": pa.array([10**8] * len(ids), pa.timestamp("ns", "UTC")),
                }
            ),
        )
    assert staging.rows("spans", staging.time_range)["service"].to_pylist() == [str(reports - 1)] * len(ids)
    staging.insert_new_names()
    stored = client.query("SELECT service, start_time = fromUnixTimestamp64Milli(100), count() FROM spans GROUP BY ALL")
    assert stored.result_rows == [(str(reports - 1), True, len(ids))]
    staging.drop()
    assert client.query("SELECT count() FROM system.tables WHERE startsWith(name, 'job_test')").result_rows == [(0,)]


def test_spans_have_the_defaults_of_columns_that_somebody_added(client: Client) -> None:
    client.command("ALTER TABLE spans ADD COLUMN team String DEFAULT upper(service)")
    staging = Staging(client, "test", TimeRange(0, 10**9), NO_FENCE)
    staging.make()
    span = {"trace_id": pa.array([b"t" * 16], pa.binary(16)), "service": pa.array(["shop"])}
    staging.insert("spans", pa.table(span | {"start_time": pa.array([1], pa.timestamp("ns", "UTC"))}))
    staging.insert_new_names()
    assert client.query("SELECT service, team FROM spans").result_rows == [("shop", "SHOP")]


def test_tables_go_where_no_more_of_a_file_can_be_written(client: Client) -> None:
    staging = Staging(client, "test", TimeRange(0, 10**9), NO_FENCE)
    staging.make()
    staging.insert("samples", rows(["a"]))
    limits, on_signal = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            staging.insert("samples", rows(["a"] * 100_000))
        staging.drop()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, on_signal)
    assert client.query(f"SELECT count() FROM system.tables WHERE name = '{staging.table('samples')}'").result_rows == [
        (0,)
    ]
