"""Drops staging tables that no run of a job will read: of jobs that ended in the middle."""

from clickhouse_connect.driver.client import Client

from jobs.staging.staging import NAME_PATTERN, drop_tables, prefix
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, of_all_replicas, quoted

_KEPT_S = 3600
"""A job that stood still, and wakes before this time is over, finds its tables and says that it has lost its lock."""


def drop_unused_staging(client: Client, name: str, cluster: Cluster = ONE_SERVER) -> None:
    """Drops all staging tables of the job of this name, which is about to begin, and those of others that have had no
    lock for a while; also on other hosts of a cluster. A job makes its tables only once it has its lock."""
    tables, where = "system.tables", ""
    if cluster.name:
        tables = f"clusterAllReplicas({quoted(cluster.name)}, system, tables)"
        where = f" ON CLUSTER {quoted(cluster.name)}"
    database = client.query("SELECT currentDatabase()").result_rows[0][0]
    # The tables are listed before the locks are read: no job can begin in between whose tables are in the list.
    names = [
        (str(table), str(owner))
        for table, owner in client.query(
            f"SELECT DISTINCT name, extract(name, {{pattern:String}}) FROM {tables}"
            " WHERE database = {database:String}"
            " AND (startsWith(name, {prefix:String}) OR match(name, {pattern:String}))",
            parameters={"database": database, "prefix": prefix(name), "pattern": NAME_PATTERN},
        ).result_rows
    ]
    in_use = {
        str(owner)
        for (owner,) in client.query(
            f"SELECT DISTINCT substring(owner, 1, 8) FROM {of_all_replicas('job_locks', cluster)}"
            f" WHERE expires_time > now64(3) - toIntervalSecond({_KEPT_S})"
        ).result_rows
    }
    unused = [table for table, owner in names if table.startswith(prefix(name)) or owner not in in_use]
    drop_tables(client, unused, where)
