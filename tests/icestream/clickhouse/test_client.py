"""Clients of ClickHouse: one a thread or a query, and a fresh one after a failure."""

import threading

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from icestream.clickhouse.client import Clients, connect
from icestream.settings import SettingError


def test_each_thread_has_its_own_client_and_sees_the_same_data(engine: str) -> None:
    clients = Clients(engine)
    clients.get().command("CREATE OR REPLACE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    clients.get().command("INSERT INTO t VALUES (7)")
    seen: list[tuple[Client, object]] = []

    def ask() -> None:
        seen.append((clients.get(), clients.get().query("SELECT a FROM t").result_rows))
        clients.discard()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [rows for _, rows in seen] == [[(7,)]] * 3
    assert len({id(client) for client, _ in seen} | {id(clients.get())}) == 4
    clients.get().command("DROP TABLE t")
    clients.discard()


def test_after_a_failed_query_a_new_client_answers_rightly(engine: str) -> None:
    clients = Clients(engine)
    failed = clients.get()
    with pytest.raises(ClickHouseError):
        failed.query("SELECT throwIf(number = 100000) FROM numbers(200000)")
    clients.discard()
    assert clients.get() is not failed
    assert clients.get().query("SELECT 1").result_rows == [(1,)]
    clients.discard()
    clients.discard()


def test_a_client_is_borrowed_by_one_thread_after_the_other_and_not_after_a_failure(engine: str) -> None:
    clients, seen = Clients(engine), []

    def ask() -> None:
        with clients.borrowed() as client:
            seen.append((client, client.query("SELECT 1").result_rows))

    for _ in range(3):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert seen == [(seen[0][0], [(1,)])] * 3
    with clients.borrowed() as first, clients.borrowed() as other:
        assert first is seen[0][0]
        assert other is not first
    with pytest.raises(ClickHouseError), clients.borrowed() as failed:
        failed.query("SELECT throwIf(number = 100000) FROM numbers(200000)")
    with clients.borrowed() as one, clients.borrowed() as another:
        assert failed not in (one, another)
        assert one.query("SELECT 1").result_rows == [(1,)]


def test_a_server_that_is_not_there_is_an_error_of_the_client() -> None:
    with pytest.raises(ClickHouseError):
        connect("http://default@127.0.0.1:1/default", connect_timeout=1)


@pytest.mark.parametrize("dsn", ["clickhouse:8123/icestream", "foo", "https://", "postgres://u:secret@h/db", ""])
def test_what_is_no_address_is_refused_and_not_taken_for_localhost(dsn: str) -> None:
    with pytest.raises(SettingError, match=r"expected http\(s\)://") as refused:
        connect(dsn)
    assert "secret" not in str(refused.value)
