"""Makes tables from numbered SQL files: runs each statement once, and records those of a file with their checksums.

Nothing else makes tables. Every statement may run twice without harm (`IF NOT EXISTS`): if a process dies before it has
recorded a file, the statements of the file run again.

Parts of an older version work with the tables of a newer one, so that processes can be upgraded one after the other: a
migration adds what the older parts need not know. Where that is impossible, the file begins with `-- breaks older
parts`; then parts that do not know the migration refuse to work with the tables. A line `-- formerly CHECKSUM` before a
statement names an earlier form of it, with which parts of this version work as well.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import is_embedded
from sinks.change_tables import change_tables
from sinks.cluster import DICTIONARIES, INSERT_SETTINGS, Cluster, database_statements, distribute, on_cluster

FOLDER = Path(__file__).parent / "migrations"
BREAKS = "-- breaks older parts"

_RECORDS = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32, name String, statement UInt32, checksum String, applied DateTime('UTC') DEFAULT now()
)
ENGINE = MergeTree
ORDER BY (version, statement)
"""
_MORE_COLUMNS = """
ALTER TABLE schema_migrations
    ADD COLUMN IF NOT EXISTS breaks UInt8,   -- 1: parts that do not know this migration cannot work with the tables
    ADD COLUMN IF NOT EXISTS cluster String  -- of the replicated tables; '': they are not replicated
"""


_DISTRIBUTED = "Distributed"
_CHANGES_VIEW = re.compile(r"ALTER TABLE (\w+) MODIFY QUERY")
_MAKES_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


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
    breaks: bool
    formerly: tuple[str, ...]


def migrate(client: Client, folder: Path = FOLDER, cluster: str = "") -> list[Statement]:
    """Runs the statements that have not run yet, in order, in the client's database; returns them.

    `cluster`: makes replicated tables on all hosts of this cluster; later runs find out by themselves. Raises
    MigrationError where a statement has changed since it ran, or where the tables are too new for this version, and
    DiskFullError.
    """
    engine = _engine(client)
    known = records(client) if engine else []
    if known and cluster not in ("", cluster_of(known)):
        raise MigrationError(
            f"these tables were made {_described(cluster_of(known))}, not on the cluster {cluster}: use a new database"
        )
    target = _choose_cluster(client, cluster or cluster_of(known), engine)
    tables = {"schema_migrations"} | {m[1] for s in statements(folder) if (m := _MAKES_TABLE.search(s.sql))}
    for sql in database_statements(target, _database(client)):
        client.command(sql)
    if target.name or not _has_records(client):
        for sql in (_RECORDS, _MORE_COLUMNS):
            change_tables(client, on_cluster(sql, target, tables))
    distribute(client, target)
    missing = list(_missing(records(client), folder))
    for _, of_file in groupby(missing, lambda statement: statement.version):
        done = list(of_file)
        for statement in done:
            change_tables(client, on_cluster(statement.sql, target, tables), DICTIONARIES)
        client.insert(
            "schema_migrations",
            [[one.version, one.name, one.number, one.checksum, one.breaks, target.name] for one in done],
            column_names=["version", "name", "statement", "checksum", "breaks", "cluster"],
            settings={"async_insert": 0} | (INSERT_SETTINGS if target.name else {}),
        )
    distribute(client, target)
    if not target.name and (not known or is_embedded(client.uri)):
        _load_again(client, missing)
    return missing


def _load_again(client: Client, missing: list[Statement]) -> None:
    """Loads views whose query was changed, while nobody inserts: tables are new, or only this process has them.

    The embedded ClickHouse 26.9 gives the blocks of such a view other deduplication IDs than after its next start: a
    block that a killed sink inserts again would count twice behind the view.
    """
    for view in dict.fromkeys(m[1] for s in missing if (m := _CHANGES_VIEW.search(s.sql))):
        client.command(f"DETACH TABLE {view}")
        client.command(f"ATTACH TABLE {view}")


def check(client: Client, dsn: str, folder: Path = FOLDER) -> Cluster:
    """Returns where the tables are. Raises MigrationError where tables are missing, or where this version cannot work
    with them."""
    engine = _engine(client)
    if not engine:
        raise MigrationError(f"there are no icestream tables in {shown(dsn)}: run `icestream migrate --clickhouse DSN`")
    recorded = records(client)
    if missing := [f"{s.version:04d}_{s.name}" for s in _missing(recorded, folder)]:
        raise MigrationError(
            f"tables in {shown(dsn)} are of an older version ({', '.join(dict.fromkeys(missing))} missing): "
            "run `icestream migrate --clickhouse DSN`"
        )
    return _with_engine(client, cluster_of(recorded), engine)


def cluster_of_tables(client: Client) -> Cluster:
    """Returns where the tables of the client's database are."""
    return _with_engine(client, cluster_of(records(client)), _engine(client))


def records(client: Client) -> list[dict[str, Any]]:
    """Returns the rows of `schema_migrations`; those of older versions lack columns."""
    return list(client.query("SELECT * FROM schema_migrations").named_results())


def cluster_of(recorded: list[dict[str, Any]]) -> str:
    """Returns the cluster of the tables with these records; "" if they are not replicated."""
    return next((str(record["cluster"]) for record in recorded if record.get("cluster")), "")


def statements(folder: Path = FOLDER) -> Iterator[Statement]:
    """Yields the statements of the files `NNNN_name.sql` in order. A statement ends with a `;` at the end of a line."""
    for path in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)", path.stem)
        if match is None:
            raise MigrationError(f"{path.name}: a migration is called NNNN_name.sql")
        text = path.read_text(encoding="utf-8")
        sqls = [sql.strip() for sql in re.split(r";[ \t]*(?:--[^\n]*)?(?:\n|\Z)", text)]
        for number, sql in enumerate((sql for sql in sqls if _bare(sql)), start=1):
            checksum = hashlib.sha256(_bare(sql).encode()).hexdigest()
            formerly = tuple(re.findall(r"(?m)^-- formerly ([0-9a-f]{64})$", sql))
            yield Statement(int(match[1]), match[2], number, sql, checksum, text.startswith(BREAKS), formerly)


def are_new(done: list[Statement]) -> bool:
    """Returns whether the tables were made by these statements."""
    return any(statement.version == 1 for statement in done)


def shown(dsn: str) -> str:
    """Returns a DSN without its password."""
    return re.sub(r"//([^:/@]*):[^@]*@", r"//\1:***@", dsn)


def _choose_cluster(client: Client, cluster: str, engine: str) -> Cluster:
    """Returns where tables belong. `engine`: of `schema_migrations`; "": there are none yet. Raises MigrationError."""
    if not cluster:
        return Cluster()
    shards = client.query(
        "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {cluster:String}",
        parameters={"cluster": cluster},
    ).result_rows[0][0]
    if not shards:
        raise MigrationError(f"there is no cluster {cluster}: see system.clusters")
    if shards > 1 and engine not in ("", _DISTRIBUTED):
        raise MigrationError(
            f"the cluster {cluster} has {shards} shards now, and these tables were made for one: use a new database"
        )
    return _with_engine(client, cluster, engine or (_DISTRIBUTED if shards > 1 else ""))


def _with_engine(client: Client, cluster: str, engine: str) -> Cluster:
    """Returns where tables are. `engine`: of `schema_migrations`."""
    return Cluster(cluster, f"{_database(client)}_local" if engine == _DISTRIBUTED else "")


def _database(client: Client) -> str:
    return str(client.query("SELECT currentDatabase()").result_rows[0][0])


def _engine(client: Client) -> str:
    """Returns the engine of the table of records; "" without tables."""
    rows = client.query(
        "SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'"
    ).result_rows
    return str(rows[0][0]) if rows else ""


def _has_records(client: Client) -> bool:
    """Whether the table of records has all its columns. A statement that changes nothing writes the table's definition
    all the same."""
    return bool(
        client.query(
            "SELECT count() FROM system.columns"
            " WHERE database = currentDatabase() AND table = 'schema_migrations' AND name = 'cluster'"
        ).result_rows[0][0]
    )


def _missing(recorded: list[dict[str, Any]], folder: Path) -> Iterator[Statement]:
    applied = {(record["version"], record["statement"]): record for record in recorded}
    for statement in statements(folder):
        record = applied.pop((statement.version, statement.number), None)
        if record is None:
            yield statement
        elif record["checksum"] not in (statement.checksum, *statement.formerly):
            raise MigrationError(
                f"migration {statement.version:04d}_{statement.name}, statement {statement.number}, has changed "
                "since it ran here. Migrations are never edited: use the release that made these tables, "
                "or a new database"
            )
    if breaking := [version for (version, _), record in applied.items() if record.get("breaks")]:
        raise MigrationError(
            f"this version of icestream cannot work with these tables: migration {max(breaking):04d} of a newer one "
            "changed what it needs. Upgrade this part"
        )


def _described(cluster: str) -> str:
    return f"on the cluster {cluster}" if cluster else "without a cluster"


def _bare(sql: str) -> str:
    """Returns a statement without comments, on one line."""
    return " ".join(re.sub(r"(?m)(^|\s)--.*$", "", sql).split())
