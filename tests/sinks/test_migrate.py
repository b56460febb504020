"""Tables are made once, and by nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from icestream.clickhouse import Clients
from sinks import retention
from sinks.migrate import FOLDER, MigrationError, check, migrate, shown, statements


def copy(folder: Path) -> Path:
    for path in FOLDER.glob("*.sql"):
        (folder / path.name).write_text(path.read_text())
    return folder


def test_each_statement_is_run_once(empty: Clients) -> None:
    assert migrate(empty.get()) == list(statements())
    assert migrate(empty.get()) == []
    check(empty.get(), empty.dsn)


def test_a_statement_that_ran_without_its_record_does_no_harm(empty: Clients) -> None:
    migrate(empty.get())
    empty.get().command("TRUNCATE TABLE schema_migrations")
    assert len(migrate(empty.get())) == len(list(statements()))


def test_new_migrations_are_applied_and_their_absence_is_told(empty: Clients, tmp_path: Path) -> None:
    migrate(empty.get())
    folder = copy(tmp_path)
    (folder / "9000_more.sql").write_text("-- why\nCREATE TABLE IF NOT EXISTS more (a UInt8) ENGINE = Memory;\n")
    with pytest.raises(MigrationError, match=r"9000_more missing.*icestream migrate"):
        check(empty.get(), empty.dsn, folder)
    assert [s.name for s in migrate(empty.get(), folder)] == ["more"]
    with pytest.raises(MigrationError, match="newer icestream"):
        check(empty.get(), empty.dsn)


def test_a_changed_migration_is_refused_a_changed_comment_is_not(empty: Clients, tmp_path: Path) -> None:
    migrate(empty.get())
    first = copy(tmp_path) / "0001_samples.sql"
    first.write_text("-- another comment\n" + first.read_text().replace("    value  ", "    value     "))
    assert migrate(empty.get(), tmp_path) == []
    first.write_text(first.read_text().replace("Int64 CODEC", "Int128 CODEC"))
    with pytest.raises(MigrationError, match="0001_samples, statement 1, has changed"):
        migrate(empty.get(), tmp_path)


def test_retention_is_set_changed_and_taken_away(clients: Clients) -> None:
    def ttl(table: str) -> str:
        create = clients.get().query(f"SELECT create_table_query FROM system.tables WHERE database = currentDatabase()"
                                     f" AND name = '{table}'").result_rows[0][0]  # fmt: skip
        return str(create).partition(" TTL ")[2].partition(" SETTINGS")[0]

    retention.retain(clients.get(), 5)
    assert ttl("samples") == "toDateTime(time) + toIntervalDay(5)"
    assert ttl("batches").endswith("toIntervalDay(8)")
    assert ttl("nodes").endswith("toIntervalDay(7)")
    retention.retain(clients.get(), 30)
    assert ttl("trace_samples").endswith("toIntervalDay(30)")
    retention.retain(clients.get(), 0)
    assert {ttl(table) for table in ("samples", "nodes", "batches", "spans")} == {""}
    for days in (-1, 10**6):
        with pytest.raises(MigrationError, match="retention"):
            retention.retain(clients.get(), days)


def test_locations_that_nothing_refers_to_go_after_two_days(clients: Clients) -> None:
    client = clients.get()
    for location, age in ((1, 5), (2, 5), (3, 1)):
        client.command(
            f"INSERT INTO locations (location_id, last_seen) VALUES ({location}, now() - INTERVAL {age} DAY)"
        )
    client.command("INSERT INTO nodes VALUES (7, 0, 2, now())")
    retention.drop_unused_locations(client)
    assert client.query("SELECT location_id FROM locations ORDER BY location_id").result_rows == [(2,), (3,)]


def test_passwords_are_not_shown() -> None:
    assert shown("http://me:secret@host:8123/db") == "http://me:***@host:8123/db"
    assert shown("chdb:///data") == "chdb:///data"


def test_the_command_makes_tables_and_says_so(tmp_path: Path) -> None:
    def command(*more: str) -> "subprocess.CompletedProcess[str]":
        call = "import sys; from icestream.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", call, "migrate", "--clickhouse", f"chdb://{tmp_path}/db", *more],
            capture_output=True, text=True,
        )  # fmt: skip

    first = command("--retention-days", "30")
    assert first.returncode == 0, first.stderr
    assert "applied 0001_samples" in first.stdout
    assert command().stdout == "the tables are up to date\n"
    refused = command("--retention-days", "-4")
    assert (refused.returncode, "retention is 0" in refused.stderr) == (1, True)
