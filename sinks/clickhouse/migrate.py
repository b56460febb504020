"""Makes the tables: runs the files of `sinks/schema/`, one for each concern, and records each with its checksum.

Nothing else makes tables. A file that has made tables is never edited: what changes later comes with files of
`sinks/schema/changes/` (NNNN_name.sql), which run once, after all others and in their order. Every statement may run
twice without harm (`IF NOT EXISTS`): if a process dies before it has recorded the files, their statements run again.

Parts of an older version work with the tables of a newer one, so that processes can be upgraded one after the other: a
change only adds what older parts need not know.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from sinks.clickhouse.change_tables import change_tables
from sinks.clickhouse.cluster import DICTIONARIES, INSERT_SETTINGS, Cluster, database_statements, distribute, on_cluster

FOLDER = Path(__file__).parents[1] / "schema"

_RECORDS = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    name     String,                        -- of a file
    checksum String,
    cluster  String,                        -- of the replicated tables; '': they are not replicated
    applied  DateTime('UTC') DEFAULT now()
)
ENGINE = MergeTree
ORDER BY name
"""
_DISTRIBUTED = "Distributed"
_MAKES_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


class MigrationError(Exception):
    """The tables are not what this version of icestream needs; the message says what to do."""


class SchemaFile(NamedTuple):
    """`checksum` does not depend on comments and white space."""

    name: str
    statements: list[str]
    checksum: str


class MigrationRecord(NamedTuple):
    """A row of `schema_migrations`."""

    name: str
    checksum: str
    cluster: str


def migrate(client: Client, folder: Path = FOLDER, cluster: str = "") -> list[str]:
    """Runs the files that have not run yet in the client's database; returns their names.

    `cluster`: makes replicated tables on all hosts of this cluster; later runs find out by themselves. Raises
    MigrationError where a file has changed since it ran, and DiskFullError.
    """
    engine = _engine(client)
    recorded = _records(client) if engine else []
    made_on = _cluster_of(recorded)
    if recorded and cluster not in ("", made_on):
        on = f"on the cluster {made_on}" if made_on else "without a cluster"
        raise MigrationError(f"these tables were made {on}, not on the cluster {cluster}: use a new database")
    missing = _missing(recorded, folder)
    target = _choose_cluster(client, cluster or made_on, engine)
    all_statements = [sql for file in schema_files(folder) for sql in file.statements]
    tables = {"schema_migrations"} | {match[1] for sql in all_statements if (match := _MAKES_TABLE.search(sql))}
    for sql in database_statements(target, _database(client)):
        client.command(sql)
    if target.name or not engine:
        change_tables(client, on_cluster(_RECORDS, target, tables))
    distribute(client, target)
    statements = [sql for file in missing for sql in file.statements]
    for sql in sorted(statements, key=lambda sql: not _MAKES_TABLE.search(sql)):  # views read tables of other files
        change_tables(client, on_cluster(sql, target, tables), DICTIONARIES)
    if missing:
        client.insert(
            "schema_migrations",
            [MigrationRecord(file.name, file.checksum, target.name) for file in missing],
            column_names=list(MigrationRecord._fields),
            settings={"async_insert": 0} | (INSERT_SETTINGS if target.name else {}),
        )
    distribute(client, target)
    return [file.name for file in missing]


def check(client: Client, dsn: str, folder: Path = FOLDER) -> Cluster:
    """Returns where the tables are. Raises MigrationError where tables are missing, or where this version cannot work
    with them."""
    engine = _engine(client)
    if not engine:
        raise MigrationError(f"there are no icestream tables in {shown(dsn)}: run `icestream migrate --clickhouse DSN`")
    recorded = _records(client)
    if missing := ", ".join(file.name for file in _missing(recorded, folder)):
        raise MigrationError(
            f"tables in {shown(dsn)} are of an older version ({missing} missing): "
            "run `icestream migrate --clickhouse DSN`"
        )
    return _with_engine(client, _cluster_of(recorded), engine)


def cluster_of_tables(client: Client) -> Cluster:
    """Returns where the tables of the client's database are."""
    return _with_engine(client, _cluster_of(_records(client)), _engine(client))


def schema_files(folder: Path = FOLDER) -> Iterator[SchemaFile]:
    """Yields the files in order. A statement ends with a `;` at the end of a line."""
    for path in (*sorted(folder.glob("*.sql")), *sorted(folder.glob("changes/*.sql"))):
        sqls = [sql.strip() for sql in re.split(r";[ \t]*(?:--[^\n]*)?(?:\n|\Z)", path.read_text(encoding="utf-8"))]
        bare = {sql: _bare(sql) for sql in sqls if _bare(sql)}
        yield SchemaFile(path.stem, list(bare), hashlib.sha256(";\n".join(bare.values()).encode()).hexdigest())


def are_new(done: list[str]) -> bool:
    """Returns whether the tables were made by these files."""
    return "samples" in done


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


def _records(client: Client) -> list[MigrationRecord]:
    rows = client.query(f"SELECT {', '.join(MigrationRecord._fields)} FROM schema_migrations").result_rows
    return [MigrationRecord(*row) for row in rows]


def _cluster_of(recorded: list[MigrationRecord]) -> str:
    """Returns the cluster of the tables with these records; "" if they are not replicated."""
    return next((record.cluster for record in recorded if record.cluster), "")


def _missing(recorded: list[MigrationRecord], folder: Path) -> list[SchemaFile]:
    """Returns the files that have not run. Raises MigrationError where one has changed since it ran."""
    checksums = {record.name: record.checksum for record in recorded}
    files = list(schema_files(folder))
    if changed := ", ".join(file.name for file in files if checksums.get(file.name, file.checksum) != file.checksum):
        raise MigrationError(
            f"these tables were made by a version of icestream with another schema ({changed}): "
            "use that version, or a new database (for `icestream up`, a new data folder)"
        )
    return [file for file in files if file.name not in checksums]


def _bare(sql: str) -> str:
    """Returns a statement without comments, on one line."""
    return " ".join(re.sub(r"(?m)(^|\s)--.*$", "", sql).split())
