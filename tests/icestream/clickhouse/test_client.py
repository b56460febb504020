"""Clients of ClickHouse: one a thread or a query, and a fresh one after a failure."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from icestream.clickhouse.client import Clients, connect
from icestream.settings import SettingError
from tests.gateway.scrape.servers import Certificates


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


def test_a_server_that_is_not_there_is_an_error_in_a_sentence() -> None:
    with pytest.raises(ClickHouseError) as error:
        connect("http://default:secret@127.0.0.1:1/default", connect_timeout=1)
    assert str(error.value) == "no connection to 127.0.0.1:1: Connection refused"


class _Server(BaseHTTPRequestHandler):
    """Answers what no ClickHouse answers, so that the client says it was heard."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"no version\n")


def test_https_is_spoken_on_any_port_and_checks_the_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.file("server.pem"), certificates.file("server.key"))
    with HTTPServer(("127.0.0.1", 0), _Server) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dsn = f"https://u:secret@127.0.0.1:{server.server_port}/db"
        with pytest.raises(ClickHouseError, match="certificate verify failed"):
            connect(dsn)
        with pytest.raises(ClickHouseError, match="version query"):
            connect(f"{dsn}?ca_cert={certificates.file('ca.pem')}")
        server.shutdown()


@pytest.mark.parametrize("dsn", ["clickhouse:8123/icestream", "foo", "https://", "postgres://u:secret@h/db", ""])
def test_what_is_no_address_is_refused_and_not_taken_for_localhost(dsn: str) -> None:
    with pytest.raises(SettingError, match=r"expected http\(s\)://") as refused:
        connect(dsn)
    assert "secret" not in str(refused.value)
