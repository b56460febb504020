"""The tables of a ClickHouse cluster, from the same SQL as those of one server.

With one shard, the tables are replicated on every host. With several shards, the replicated tables are in a database of
their own, DATABASE_local, and DATABASE has a Distributed table of the same name for each. So inserts and queries are
the same everywhere. A row goes to the shard of its host: what belongs to one batch is on one shard, together with the
batch's row in `batches`. Rows without a host go by the first column of their sorting key, so that equal ones meet in
one table, which merges them.

The tables of a shard have one path in Keeper, with the macros `{shard}` and `{replica}` of each server's
configuration. A statement runs on all hosts (ON CLUSTER).
"""

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

_PATHS = "/clickhouse/tables"
_HEAD = re.compile(
    r"\A((?:\s*--[^\n]*\n)*\s*)"
    r"(CREATE TABLE IF NOT EXISTS |CREATE (?:MATERIALIZED )?VIEW IF NOT EXISTS |CREATE OR REPLACE VIEW "
    r"|ALTER TABLE )(\w+)"
)
_ENGINE = re.compile(r"\bENGINE = (\w*MergeTree)(?:\(([^()]*)\))?")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window\b")
_TABLE = re.compile(r"\b(FROM|JOIN|TO|AS)(\s+)(\w+)\b")
_VIEWS = ("CREATE VIEW", "CREATE OR REPLACE VIEW")
_PROFILE_TYPE = "profile_type"
_HOST = "host_id"

INSERT_SETTINGS: dict[str, int | str] = {
    "insert_quorum": "auto",
    "insert_quorum_timeout": 60_000,
    "distributed_foreground_insert": 1,
}
"""An insert into replicated tables returns when a majority of the replicas has it, on each shard that gets rows."""

GLOBAL: dict[str, int | str] = {"distributed_product_mode": "global"}
"""A query of one Distributed table with a subquery of another runs the subquery once, over all shards."""


ON_EVERY_HOST: dict[str, int | str] = {"distributed_ddl_output_mode": "throw"}
"""A statement ON CLUSTER returns when every host has run it, and fails where one has not."""

ON_EACH_SHARD: dict[str, int | str] = {"parallel_distributed_insert_select": 2}
"""INSERT ... SELECT from one Distributed table to another inserts on each shard what it selects there."""

DICTIONARIES: dict[str, int | str] = {"allow_suspicious_low_cardinality_types": 1}
"""Allows a table with dictionaries of numbers, as `samples` has for stacks and threads. Not every ClickHouse reads this
in the SETTINGS of CREATE TABLE."""

ACROSS_SHARDS: dict[str, int | str] = GLOBAL | {"parallel_distributed_insert_select": 0}
"""INSERT ... SELECT from one Distributed table to another sums up the rows of all shards together."""


class ClusterError(ValueError):
    """A statement that is not understood: it would change one host only."""


@dataclass(frozen=True)
class Cluster:
    """Where the tables are. Without a name, they are on one server."""

    name: str = ""
    local: str = ""
    """The database of the tables with the rows, if there are several shards."""


ONE_SERVER = Cluster()


def database_of_rows(cluster: Cluster) -> str:
    """Returns the database of the tables that hold rows, as an expression of SQL."""
    return quoted(cluster.local) if cluster.local else "currentDatabase()"


def database_name(client: Client, cluster: Cluster) -> str:
    """Returns the name of the database of the tables that hold rows."""
    return cluster.local or str(client.query("SELECT currentDatabase()").result_rows[0][0])


def of_all_replicas(table: str, cluster: Cluster) -> str:
    """Returns what to read FROM, so that no row is missing that a majority of the replicas has."""
    if not cluster.name:
        return table
    return f"clusterAllReplicas({quoted(cluster.name)}, {database_of_rows(cluster)}, {quoted(table)})"


def of_all_hosts(table: str, cluster: Cluster) -> str:
    """Returns what to read FROM for a table of the database `system`: that of the server, or of each host."""
    return f"clusterAllReplicas({quoted(cluster.name)}, system, {table})" if cluster.name else f"system.{table}"


def of_this_host(table: str, cluster: Cluster) -> str:
    """Returns the table with the rows that the host has which runs a statement."""
    return _in(cluster.local, table)


def wait_for_replicas(client: Client, cluster: Cluster, *tables: str) -> None:
    """Waits until the replicas that a query may read have all rows that are stored now. Fails where a host is away.
    LIGHTWEIGHT: it does not wait for merges and mutations, which may take long."""
    for table in tables if cluster.name else ():
        where = f"ON CLUSTER {quoted(cluster.name)} " if cluster.local else ""
        client.command(f"SYSTEM SYNC REPLICA {where}{_in(cluster.local, table)} LIGHTWEIGHT", settings=ON_EVERY_HOST)


def wait_for_every_host(client: Client, cluster: Cluster, *tables: str) -> None:
    """Waits until all replicas have all rows that are stored now, also those that this client does not read. Fails
    where a host is away."""
    for table in tables if cluster.name else ():
        on = f"ON CLUSTER {quoted(cluster.name)} {_in(database_name(client, cluster), table)}"
        client.command(f"SYSTEM SYNC REPLICA {on} LIGHTWEIGHT", settings=ON_EVERY_HOST)


def delete_from(table: str, cluster: Cluster) -> str:
    """Returns the beginning of a DELETE, up to WHERE. On a cluster its condition must not depend on other tables or the
    time: each replica works it out by itself. Run it with ON_EVERY_HOST."""
    return f"DELETE FROM {_on_shards(table, cluster)}"


def alter_table(table: str, cluster: Cluster) -> str:
    """Returns the beginning of an ALTER TABLE of rows. Run it with ON_EVERY_HOST."""
    return f"ALTER TABLE {_on_shards(table, cluster)}"


def create_like(create: str, table: str, name: str, cluster: Cluster) -> str:
    """Returns the statement that makes a table like one with rows, on all hosts. `create`: the statement that would
    make that one, as ClickHouse says it. By `CREATE TABLE ... AS`, replicas would get the path of that one."""
    columns = create[create.index("(") :].replace(f"/{table}'", f"/{name}'", 1)
    return f"CREATE TABLE {_on_hosts(_in(cluster.local, name), cluster)} {columns}"


def drop_table(name: str, cluster: Cluster) -> list[str]:
    """Returns the statements that drop a table on all hosts, if it is there."""
    names = dict.fromkeys((name, _in(cluster.local, name)))
    return [f"DROP TABLE IF EXISTS {_on_hosts(each, cluster)} SYNC" for each in names]


def on_cluster(sql: str, cluster: Cluster, tables: Collection[str] = ()) -> str:
    """Returns a statement of the schema for a cluster; without a cluster as it is. Raises ClusterError.

    `tables`: all that statements may name.
    """
    if not cluster.name:
        return sql
    head = _HEAD.match(sql)
    if head is None:
        raise ClusterError(f"cannot run on a cluster: {sql.strip()[:200]}")
    if head[2].startswith(_VIEWS):  # is of the tables that queries read, whichever host has the rows
        return f"{head[0]} ON CLUSTER {quoted(cluster.name)}{sql[head.end() :]}"
    table = head[3]
    rest = _ENGINE.sub(lambda engine: _replicated(table, engine[1], engine[2]), sql[head.end() :], count=1)
    rest = _WINDOW.sub("replicated_deduplication_window", rest)
    if cluster.local:
        rest = _TABLE.sub(lambda m: f"{m[1]}{m[2]}{_in(cluster.local, m[3])}" if m[3] in tables else m[0], rest)
    return f"{head[1]}{head[2]}{_in(cluster.local, table)} ON CLUSTER {quoted(cluster.name)}{rest}"


def database_statements(cluster: Cluster, database: str) -> list[str]:
    """Returns the statements that make the databases of a cluster with several shards; none for others."""
    if not cluster.local:
        return []
    return [
        f"CREATE DATABASE IF NOT EXISTS {identifier(name)} ON CLUSTER {quoted(cluster.name)}"
        for name in (database, cluster.local)
    ]


def distribute(client: Client, cluster: Cluster) -> None:
    """Makes the Distributed tables that are missing, or that lack columns. They hold no rows."""
    if cluster.local:
        for statement in distributed_tables(client, cluster):
            client.command(statement, settings=DICTIONARIES)


def distributed_tables(client: Client, cluster: Cluster) -> list[str]:
    """Returns the statements that make the Distributed tables that are missing, or that lack columns."""
    rows = client.query(
        "SELECT database, table, name, type, is_in_sorting_key, currentDatabase() FROM system.columns"
        " WHERE database IN ({local:String}, currentDatabase()) AND table IN (SELECT name FROM system.tables"
        " WHERE database = {local:String} AND engine LIKE '%MergeTree') ORDER BY table, position",
        parameters={"local": cluster.local},
    ).result_rows
    columns: dict[tuple[str, str], list[tuple[str, str, bool]]] = defaultdict(list)
    for database, table, name, kind, sorts, _ in rows:
        columns[database, table].append((name, kind, bool(sorts)))
    here = str(rows[0][5]) if rows else ""
    return [
        f"CREATE OR REPLACE TABLE {_in(here, table)} ON CLUSTER {quoted(cluster.name)} AS {_in(cluster.local, table)}"
        f" ENGINE = Distributed({quoted(cluster.name)}, {quoted(cluster.local)}, {table}, cityHash64({key}))"
        for database, table in list(columns)
        if database == cluster.local and _types(columns[database, table]) != _types(columns[here, table])
        for key in [_sharding_column(columns[database, table])]
    ]


def quoted(text: str) -> str:
    """Returns a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(text: str) -> str:
    """Returns a name in SQL."""
    return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _types(columns: list[tuple[str, str, bool]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind, _ in columns]


def _sharding_column(columns: list[tuple[str, str, bool]]) -> str:
    """`columns`: names, types, and whether the sorting key has them. There are few profile types: all rows of one
    would be on one shard."""
    names = [name for name, _, _ in columns]
    keys = (name for name, _, sorts in columns if sorts and name != _PROFILE_TYPE)
    return _HOST if _HOST in names else next(keys, names[0])


def _on_shards(table: str, cluster: Cluster) -> str:
    """Returns the table with rows on all shards. Replicas of one shard tell each other."""
    return _on_hosts(_in(cluster.local, table), cluster) if cluster.local else table


def _on_hosts(table: str, cluster: Cluster) -> str:
    return f"{table} ON CLUSTER {quoted(cluster.name)}" if cluster.name else table


def _in(database: str, table: str) -> str:
    return f"{identifier(database)}.{table}" if database else table


def _replicated(table: str, engine: str, arguments: str | None) -> str:
    more = f", {arguments}" if arguments else ""
    return f"ENGINE = Replicated{engine}('{_PATHS}/{{shard}}/{{database}}/{table}', '{{replica}}'{more})"
