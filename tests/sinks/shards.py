"""A ClickHouse cluster with two shards in the embedded engine, to test what works through Distributed tables.

Both shards are the engine itself, and their tables are the same ones. So a filter lets each shard see only those rows
that the Distributed table sends there. Each row of a rollup, which is made on a shard, is seen by one of them.

The engine has no Keeper, so what runs ON CLUSTER runs once, and no table has replicas to wait for. It would insert
everything on each of the two shards, so an INSERT ... SELECT on each shard is done here, one shard after the other.
"""

import re
from typing import Any

from icestream.clickhouse import Clients, connect
from sinks.cluster import Cluster, distributed_tables
from sinks.migrate import migrate

NAME = "halves"
_FILTERS = "additional_table_filters"
_SHARDED = re.compile(r"(\w+), cityHash64\((\w+)\)\)\Z")


class Shards(Clients):
    """Clients of a database whose tables are Distributed ones."""

    def __init__(self, engine: str, database: str) -> None:
        self.cluster = Cluster(NAME, f"{database}_local")
        for name in (database, self.cluster.local):
            connect(engine).command(f"CREATE DATABASE {name}")
        self.local = connect(engine, database=self.cluster.local)
        migrate(self.local)
        self.local.command(f"INSERT INTO schema_migrations (version, cluster) VALUES (0, '{NAME}')")
        all_shards = connect(engine, database=database)
        self.slots = {}  # table -> the shard of a row, 1 or 2
        for statement in distributed_tables(all_shards, self.cluster):
            all_shards.command(_once(statement))
            if match := _SHARDED.search(statement):
                self.slots[match[1]] = f"1 + cityHash64({match[2]}) % 2"
        super().__init__(engine, database=database, settings={_FILTERS: self.filters("shardNum()")})

    def get(self) -> Any:
        return _Client(self, super().get())

    def filters(self, shard: str) -> str:
        """Returns the setting by which a query of a shard sees its rows; one of no shard sees all."""
        each = (f"'{self.cluster.local}.{table}': '{shard} IN (0, {slot})'" for table, slot in self.slots.items())
        return f"{{{', '.join(each)}}}"


class _Client:
    """A client of one thread."""

    def __init__(self, shards: Shards, client: Any) -> None:
        self._shards = shards
        self._client = client

    def command(self, sql: str, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        if sql.startswith("SYSTEM SYNC REPLICA"):
            return None
        if (settings or {}).get("parallel_distributed_insert_select"):
            for shard in "12":
                more = (settings or {}) | {_FILTERS: self._shards.filters(shard)}
                self._shards.local.command(sql, settings=more, **options)
            return None
        return self._client.command(_once(sql), settings=settings, **options)

    def query(self, sql: str, **options: Any) -> Any:
        return self._client.query(_once(sql), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _once(sql: str) -> str:
    """Returns a statement for this engine alone. It would ask only one of two replicas with the same address."""
    return sql.replace(f" ON CLUSTER '{NAME}'", "").replace("clusterAllReplicas(", "cluster(")
