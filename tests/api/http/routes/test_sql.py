"""SQL of users over the API: what it answers, and what it refuses."""

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.cli import main
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from icestream.settings import SettingError
from tests.api.conftest import DATABASE, Api
from tests.api.fill import Frame, Sample, fill, frame
from tests.api.queries.test_sql_views import NOTEBOOK

RANGE = "start = '2026-02-02 00:00:00', end = '2026-02-03 00:00:00'"
HOSTILE = """
SELECT file('PATH')
SELECT FILE('PATH')
WITH file('PATH') AS secret SELECT secret
SELECT * APPLY(file) FROM (SELECT 'PATH')
SELECT * APPLY(x -> file(x)) FROM (SELECT 'PATH')
SELECT * REPLACE(file('PATH') AS x) FROM (SELECT 1 AS x)
SELECT value FROM samples ORDER BY file('PATH')
SELECT value FROM samples LIMIT (SELECT length(file('PATH')))
SELECT * FROM file('PATH', 'LineAsString')
SELECT 'secret' IN file('PATH', 'LineAsString')
SELECT * FROM url('URL', 'CSV', 'x String')
SELECT * FROM url('URL')
SELECT * FROM remote('HOST', system.one)
SELECT * FROM s3('URL', 'CSV', 'x String')
SELECT * FROM mysql('HOST', 'a', 'b', 'c', 'd')
SELECT * FROM executable('x', 'CSV', 'a String', (SELECT 1))
SELECT * FROM python('os')
SELECT * FROM sqlite('PATH', 'x')
SELECT * FROM merge('system', '.*')
SELECT * FROM loop(samples)
SELECT * FROM eval('SELECT 1')
SELECT * FROM (EXPLAIN SELECT 1)
SELECT * FROM cluster('halves', system.one)
SELECT * FROM dictionary('x')
SELECT dictGet('x', 'y', 1)
SELECT joinGet('x', 'y', 1)
SELECT aiGenerate('x')
SELECT sleep(3)
SELECT hostName(), getSetting('readonly'), currentUser()
SELECT 1 INTO OUTFILE 'NEW'
SELECT 1 INTO OUTFILE 'NEW' FORMAT CSV
SELECT 1 FORMAT CSV
SELECT * FROM system.users
SELECT * FROM `system`.`named_collections`
SELECT * FROM view(SELECT * FROM system.processes)
SELECT 'default' IN system.users
SELECT in('default', system.users)
SELECT EXISTS(SELECT 1 FROM system.users)
SELECT (SELECT name FROM system.users LIMIT 1)
SELECT * FROM samples JOIN system.settings ON 1
SELECT * FROM information_schema.tables
SELECT * FROM other.samples
SELECT 1 SETTINGS readonly = 0
SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 1000)
SELECT 1; DROP TABLE samples
SELECT 1) UNION ALL (SELECT file('PATH')
SELECT 1) SETTINGS readonly = 0 --
SELECT {x:String}
DROP TABLE samples
INSERT INTO samples SELECT * FROM samples
INSERT INTO FUNCTION file('NEW') SELECT 1
ALTER TABLE samples DELETE WHERE 1
CREATE TABLE t (x UInt8) ENGINE = Memory
SET readonly = 0
SYSTEM FLUSH LOGS
KILL QUERY WHERE 1
EXPLAIN SELECT 1
SHOW TABLES
DESCRIBE TABLE samples
VALUES (1)
SELECT "a
SELECT nonsense FROM samples
/* nothing */
"""


def ask(api: Api, statement: str | bytes, **parameters: object) -> tuple[int, dict]:
    answer = api.http.post("/api/v1/sql", content=statement, params=parameters)
    return answer.status_code, answer.json()


def test_a_select_is_answered_in_its_order(api: Api, client: Client) -> None:
    fill(
        client, [Sample((frame("main"), Frame(("inlined", "outer"), 0x10)), 5), Sample((frame("main"),), 3), Sample(())]
    )
    status, answer = ask(
        api, f"SELECT function, cumulative_ns FROM function_cpu({RANGE}) ORDER BY cumulative_ns DESC, function; -- end"
    )
    assert status == 200
    assert answer == {
        "columns": [{"name": "function", "type": "String"}, {"name": "cumulative_ns", "type": "Int64"}],
        "rows": [["[no stack]", 10_000_000], ["main", 8], ["inlined", 5], ["outer", 5]],
        "more": False,
    }
    status, answer = ask(api, "SELECT number FROM numbers(10) ORDER BY number DESC", rows=3)
    assert (answer["rows"], answer["more"]) == ([[9], [8], [7]], True)


@pytest.mark.parametrize(
    "statement",
    [
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a UNION ALL (SELECT 2)",
        f"SELECT service, sumIf(value, 1), quantilesTDigest(0.5, 0.9)(value) FROM {DATABASE}.samples GROUP BY 1",
        "SELECT toStartOfMinute(time) AS t, uniqIf(stack_id, 1), argMax(pid, time) FROM samples GROUP BY t",
        "SELECT *, row_number() OVER (PARTITION BY service ORDER BY time) FROM samples WHERE value IN (1, 2)",
        "SELECT CASE WHEN value > 1 THEN 'a' ELSE 'b' END, time - INTERVAL 1 HOUR, value::String FROM samples",
        "SELECT trace_id, arrayMap(x -> x + 1, [1])[1], toUInt64(18446744073709551615), nan, 'é' FROM samples",
        f"SELECT * EXCEPT (pid), arrayJoin(functions) FROM profile_samples({RANGE}) WHERE EXISTS (SELECT 1)",
        "SELECT 1 AS `system.x`, 'file(system.users)' AS `(alias` FROM numbers(1)",
    ],
)
def test_functions_that_compute_and_tables_of_the_database_are_there(api: Api, client: Client, statement: str) -> None:
    fill(client, [Sample((frame("main"),), trace_id=bytes(range(240, 256)))])
    status, answer = ask(api, statement)
    assert status == 200, answer


@pytest.fixture(scope="module")
def stranger() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server that nobody should ask, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                asked.append(b"")
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked


@pytest.mark.parametrize("statement", HOSTILE.strip().split("\n"))
def test_what_reaches_beyond_the_tables_is_refused(
    api: Api, client: Client, tmp_path: Path, stranger: tuple[str, list[bytes]], statement: str
) -> None:
    fill(client, [Sample((frame("main"),))])
    (tmp_path / "secret").write_text("the secret")
    host, asked = stranger
    places = {
        "PATH": str(tmp_path / "secret"),
        "NEW": str(tmp_path / "new"),
        "URL": f"http://{host}/x.csv",
        "HOST": host,
    }
    for name, place in places.items():
        statement = statement.replace(name, place)
    status, answer = ask(api, statement)
    assert (status, answer["error"]["code"]) == (400, "bad_sql"), answer
    assert "the secret" not in json.dumps(answer)
    assert not (tmp_path / "new").exists()
    assert asked == []
    assert client.query("SELECT count() FROM samples").result_rows == [(1,)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT sum(number) FROM numbers(1000000000000)", "query_too_large"),
        ("SELECT groupArray(number) FROM numbers(1000000000)", "query_too_large"),
        ("SELECT '" + "x" * 100_000 + "'", "query_too_large"),
        (b"SELECT '\xff'", "bad_sql"),
    ],
)
def test_a_statement_has_limits(api: Api, statement: str | bytes, code: str) -> None:
    status, answer = ask(api, statement)
    assert (status // 100, answer["error"]["code"]) == (4, code)


@pytest.mark.parametrize("rows", [0, 10_001, "many"])
def test_rows_have_a_limit(api: Api, rows: object) -> None:
    assert ask(api, "SELECT 1", rows=rows)[0] == 400


class TestWithoutTheLoopback:
    @pytest.fixture
    def settings(self) -> ApiSettings:
        return ApiSettings(listen="0.0.0.0:4060")

    def test_sql_is_not_answered_unless_a_setting_says_so(self, api: Api) -> None:
        status, answer = ask(api, "SELECT 1")
        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert "--api-sql" in answer["error"]["hint"]


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(SettingError, match="loopback, always or never"):
        ApiSettings(api_sql="yes")


def test_the_command_shows_tables_csv_and_json(
    engine: str, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(create_app(ApiSettings(), Clients(engine, database=database)), "127.0.0.1:0")
    server.start()
    try:
        url = f"http://{server.address}"
        statement = (
            "SELECT number AS n, concat('a\n', toString(n)) AS text, [n] AS list, NULL AS nothing FROM numbers(2)"
        )
        assert main(["sql", statement, "--url", url]) == 0
        assert capsys.readouterr().out.splitlines() == ["n  text  list  nothing", "0  a?0   [0]", "1  a?1   [1]"]
        assert main(["sql", statement, "--url", url, "--format", "csv", "--rows", "1"]) == 0
        said = capsys.readouterr()
        assert said.out == 'n,text,list,nothing\n0,"a\n0",[0],\n'
        assert "more than 1 rows" in said.err
        monkeypatch.setattr("sys.stdin", io.StringIO("-- nothing"))
        assert main(["sql", "--url", url]) == 1
        assert "Empty query" in capsys.readouterr().err
        assert main(["sql", "SELECT 1 AS x", "--url", url, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == [[1]]
        page: dict[str, Callable[[str], object]] = {}
        exec(NOTEBOOK.replace("http://127.0.0.1:4060", url), page)
        assert page["sql"]("SELECT 1 AS x, 'a' AS y") == [{"x": 1, "y": "a"}]
    finally:
        server.close()
