"""The tables of a ClickHouse cluster, from the same SQL as those of one server: replicated, on every host.

The tables of a shard have one path in Keeper, with the macros `{shard}` and `{replica}` of each server's
configuration. A statement runs on all hosts (ON CLUSTER).
"""

import re

_PATH = "/clickhouse/tables/{shard}/{database}"
_HEAD = re.compile(
    r"\A((?:\s*--[^\n]*\n)*\s*)(CREATE TABLE IF NOT EXISTS |CREATE MATERIALIZED VIEW IF NOT EXISTS |ALTER TABLE )(\w+)"
)
_ENGINE = re.compile(r"\bENGINE = (\w*MergeTree)(?:\(([^()]*)\))?")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window\b")

INSERT_SETTINGS: dict[str, int | str] = {"insert_quorum": "auto", "insert_quorum_timeout": 60_000}
"""An insert into replicated tables returns when a majority of the replicas has it."""


class ClusterError(ValueError):
    """A statement that is not understood: it would change one host only."""


def on_cluster(sql: str, cluster: str) -> str:
    """Returns a statement of a migration for a cluster; without a cluster as it is. Raises ClusterError."""
    if not cluster:
        return sql
    head = _HEAD.match(sql)
    if head is None:
        raise ClusterError(f"cannot run on a cluster: {sql.strip()[:200]}")
    table = head[3]
    rest = _ENGINE.sub(lambda engine: _replicated(table, engine[1], engine[2]), sql[head.end() :], count=1)
    return (
        f"{head[1]}{head[2]}{table} ON CLUSTER {quoted(cluster)}{_WINDOW.sub('replicated_deduplication_window', rest)}"
    )


def quoted(text: str) -> str:
    """Returns a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _replicated(table: str, engine: str, arguments: str | None) -> str:
    more = f", {arguments}" if arguments else ""
    return f"ENGINE = Replicated{engine}('{_PATH}/{table}', '{{replica}}'{more})"
