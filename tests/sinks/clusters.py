"""ClickHouse clusters in the embedded engine, to test what works on the tables of a cluster.

The engine has no Keeper. So no table is replicated, what runs ON CLUSTER is read by the engine and then runs here, and
there are no replicas to wait for.

Both shards of `Shards` are the engine itself, and their tables are the same ones. So a filter lets each shard see only
those rows that the Distributed table sends there. Each row of a rollup, which is made on a shard, is seen by one of
them. An INSERT ... SELECT on each shard would insert everything twice, so it is done here, one shard after the other.
Both parts of an insert have one deduplication token, so the engine would drop one of them: it ignores tokens here.
"""

import re
from typing import Any

from icestream.clickhouse.client import Clients, connect
from sinks.clickhouse.cluster import DICTIONARIES, Cluster, distributed_tables
from sinks.clickhouse.migrate import migrate

_FILTERS = "additional_table_filters"
_SHARDED = re.compile(r"(\w+), cityHash64\((\w+)\)\)\Z")
_ON_CLUSTER = re.compile(r" ON CLUSTER '\w+'")
_ON_EACH_SHARD = re.compile(r" parallel_distributed_insert_select = '2'")
_TOKEN = re.compile(r"insert_deduplication_token = '\w+'")
_WAITS = "SYSTEM SYNC REPLICA"


class OnCluster(Clients):
    """Clients of a new database, whose tables are those of a cluster."""

    def __init__(self, engine: str, database: str, cluster: Cluster, **options: Any) -> None:
        super().__init__(engine, database=database, **options)
        self.database = database
        self.cluster = cluster
        self.statements: list[str] = []
        """That were run by `command`."""

    def get(self) -> Any:
        return _Client(self, super().get())

    def on_each_shard(self, sql: str, **options: Any) -> None:
        """Runs an INSERT ... SELECT on each shard."""
        raise NotImplementedError


class OneShard(OnCluster):
    """One shard of replicated tables."""

    def __init__(self, engine: str, database: str) -> None:
        connect(engine).command(f"CREATE DATABASE {database}")
        client = connect(engine, database=database)
        migrate(client)
        client.command("INSERT INTO schema_migrations (cluster) VALUES ('whole')")
        super().__init__(engine, database, Cluster("whole"))


class Shards(OnCluster):
    """Two, with Distributed tables."""

    def __init__(self, engine: str, database: str) -> None:
        cluster = Cluster("halves", f"{database}_local")
        for name in (database, cluster.local):
            connect(engine).command(f"CREATE DATABASE {name}")
        self.local = connect(engine, database=cluster.local)
        migrate(self.local)
        self.local.command(f"INSERT INTO schema_migrations (cluster) VALUES ('{cluster.name}')")
        self.slots = {}  # table -> the shard of a row, 1 or 2
        all_shards = connect(engine, database=database)
        for statement in distributed_tables(all_shards, cluster):
            all_shards.command(_ON_CLUSTER.sub("", statement), settings=DICTIONARIES)
            if match := _SHARDED.search(statement):
                self.slots[match[1]] = f"1 + cityHash64({match[2]}) % 2"
        super().__init__(engine, database, cluster, settings={_FILTERS: self._filters(cluster, "shardNum()")})

    def on_each_shard(self, sql: str, **options: Any) -> None:
        for shard in "12":
            self.local.command(sql, settings={_FILTERS: self._filters(self.cluster, shard)}, **options)

    def _filters(self, cluster: Cluster, shard: str) -> str:
        """Returns the setting by which a query of a shard sees its rows; one of no shard sees all."""
        each = (f"'{cluster.local}.{table}': '{shard} IN (0, {slot})'" for table, slot in self.slots.items())
        return f"{{{', '.join(each)}}}"


class _Client:
    """A client of one thread."""

    def __init__(self, clients: OnCluster, client: Any) -> None:
        self._clients = clients
        self._client = client

    def command(self, sql: str, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        self._clients.statements.append(sql)
        if _ON_CLUSTER.search(sql) or sql.startswith(_WAITS):
            self._client.command(f"EXPLAIN AST {sql}", **options)  # fails where it is not SQL
        if sql.startswith(_WAITS):
            return None
        if self._clients.cluster.local:
            sql = _TOKEN.sub("insert_deduplicate = 0", sql)
        if _ON_EACH_SHARD.search(sql):
            return self._clients.on_each_shard(sql, **options)
        return self._client.command(_here(sql), settings=self._of_insert(settings), **options)

    def insert(self, *arguments: Any, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        return self._client.insert(*arguments, settings=self._of_insert(settings), **options)

    def insert_arrow(self, *arguments: Any, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        return self._client.insert_arrow(*arguments, settings=self._of_insert(settings), **options)

    def query(self, sql: str, **options: Any) -> Any:
        return self._client.query(_here(sql), **options)

    def _of_insert(self, settings: dict[str, Any] | None) -> dict[str, Any] | None:
        if not settings or not self._clients.cluster.local:
            return settings
        return {name: value for name, value in settings.items() if "token" not in name} | {"insert_deduplicate": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _here(sql: str) -> str:
    """Returns a statement for this engine, which would ask only one of two replicas with the same address."""
    sql = _ON_CLUSTER.sub("", sql)
    return sql.replace("clusterAllReplicas('halves'", "cluster('halves'")
