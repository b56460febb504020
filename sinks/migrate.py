"""Makes tables from numbered SQL files: runs each statement once, and records it with its checksum.

Nothing else makes tables. Every statement may run twice without harm (`IF NOT EXISTS`), because a process that dies
between a statement and its record runs it again.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clickhouse_connect.driver.client import Client

FOLDER = Path(__file__).parent / "migrations"

_RECORDS = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32, name String, statement UInt32, checksum String, applied DateTime('UTC') DEFAULT now()
)
ENGINE = MergeTree ORDER BY (version, statement)
"""


class MigrationError(Exception):
    """The tables are not what this version of icestream needs; the message says what to do."""


@dataclass(frozen=True)
class Statement:
    """One statement of a migration file; `checksum` does not depend on its comments and white space."""

    version: int
    name: str
    number: int
    sql: str
    checksum: str


def migrate(client: Client, folder: Path = FOLDER) -> list[Statement]:
    """Runs the statements that have not run yet, in order, in the client's database; returns them.

    Raises MigrationError where a statement has changed since it ran, or where this version does not know it.
    """
    client.command(_RECORDS)
    missing = list(_missing(client, folder))
    for statement in missing:
        client.command(statement.sql)
        client.insert(
            "schema_migrations",
            [[statement.version, statement.name, statement.number, statement.checksum]],
            column_names=["version", "name", "statement", "checksum"],
            settings={"async_insert": 0},
        )
    return missing


def check(client: Client, dsn: str, folder: Path = FOLDER) -> None:
    """Raises MigrationError where tables are missing or of another version."""
    known = client.query(
        "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'"
    )
    if not known.result_rows[0][0]:
        raise MigrationError(f"there are no icestream tables in {shown(dsn)}: run `icestream migrate --clickhouse DSN`")
    if missing := [f"{s.version:04d}_{s.name}" for s in _missing(client, folder)]:
        raise MigrationError(
            f"tables in {shown(dsn)} are of an older version ({', '.join(dict.fromkeys(missing))} missing): "
            "run `icestream migrate --clickhouse DSN`"
        )


def statements(folder: Path = FOLDER) -> Iterator[Statement]:
    """Yields the statements of the files `NNNN_name.sql` in order. A statement ends with a `;` at the end of a line."""
    for path in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)", path.stem)
        if match is None:
            raise MigrationError(f"{path.name}: a migration is called NNNN_name.sql")
        sqls = [sql.strip() for sql in re.split(r";[ \t]*(?:\n|\Z)", path.read_text(encoding="utf-8"))]
        for number, sql in enumerate((sql for sql in sqls if _bare(sql)), start=1):
            checksum = hashlib.sha256(_bare(sql).encode()).hexdigest()
            yield Statement(int(match[1]), match[2], number, sql, checksum)


def shown(dsn: str) -> str:
    """Returns a DSN without its password."""
    return re.sub(r"//([^:/@]*):[^@]*@", r"//\1:***@", dsn)


def _missing(client: Client, folder: Path) -> Iterator[Statement]:
    rows = client.query("SELECT version, statement, checksum FROM schema_migrations").result_rows
    applied = {(version, number): checksum for version, number, checksum in rows}
    for statement in statements(folder):
        checksum = applied.pop((statement.version, statement.number), None)
        if checksum is None:
            yield statement
        elif checksum != statement.checksum:
            raise MigrationError(
                f"migration {statement.version:04d}_{statement.name}, statement {statement.number}, has changed "
                "since it ran here. Migrations are never edited: use the release that made these tables, "
                "or a new database"
            )
    if applied:
        version = max(version for version, _ in applied)
        raise MigrationError(f"these tables were made by a newer icestream (migration {version:04d}): upgrade this one")


def _bare(sql: str) -> str:
    """Returns a statement without comments, on one line."""
    return " ".join(re.sub(r"(?m)(^|\s)--.*$", "", sql).split())
