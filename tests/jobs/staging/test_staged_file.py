"""Staged rows in the files of tables of the embedded engine."""

import resource
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from jobs.locks.fence import NO_FENCE
from jobs.staging.staging import Staging
from jobs.time_range import JobTimeRange
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]


def rows(hosts: list[str]) -> pa.Table:
    host_id = pa.array(hosts).dictionary_encode()
    return pa.table({"host_id": host_id, "value": pa.array(range(len(hosts)), pa.int64())})


def test_rows_of_several_portions_are_read_from_one_file_which_goes_with_its_table(client: Client) -> None:
    staging = Staging(client, "test", JobTimeRange(0, 10**9), NO_FENCE)
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


def test_tables_go_where_no_more_of_a_file_can_be_written(client: Client) -> None:
    staging = Staging(client, "test", JobTimeRange(0, 10**9), NO_FENCE)
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
