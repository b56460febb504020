"""The fence: a job that stood still while another took its range over changes nothing any more.

Its process may wake between any two statements, or the server may still execute one. So each statement that changes
live tables names the owner of the lock, in its condition and in its settings:
- A statement that begins after the takeover finds that the lock has ended, and selects no rows.
- The job that takes over ends the statements that began before, and only then deletes or inserts anything.

On a cluster, all replicas are asked for locks. A DELETE asks once, when it begins: else each replica might answer for
itself, at different times.
"""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from sinks.clickhouse.cluster import ON_EVERY_HOST, ONE_SERVER, Cluster, of_all_replicas, quoted

ENDED_SQL = "fromUnixTimestamp64Milli(0)"
"""`expires_time` of a lock that was given back, or taken over."""


@dataclass(frozen=True)
class Fence:
    """The fence of one run of a job."""

    owner: str = ""
    """The owner of the lock, hexadecimal; "": there is no lock that another job could take over."""
    cluster: Cluster = ONE_SERVER
    """Where the tables are."""

    @property
    def condition(self) -> str:
        """The SQL condition that the job still has its lock. It keeps the owner when the subquery becomes a number."""
        locks = of_all_replicas("job_locks", self.cluster)
        ended = f"SELECT count() FROM {locks} WHERE owner = '{self.owner}' AND expires_time = {ENDED_SQL}"
        return f"('{self.owner}' = '{self.owner}' AND ({ended}) = 0)"

    @property
    def settings(self) -> dict[str, str | int]:
        """The settings by which `end_statements` finds a statement, and by which a DELETE asks once."""
        once = {"mutations_execute_subqueries_on_initiator": 1} if self.cluster.name else {}
        return {"log_comment": _comment(self.owner)} | once


NO_FENCE = Fence()


def end_statements(client: Client, owner: str, cluster: Cluster = ONE_SERVER) -> None:
    """Ends the statements of an owner, which has lost its lock, that servers still execute."""
    where = f" ON CLUSTER {quoted(cluster.name)}" if cluster.name else ""
    comment = f"Settings['log_comment'] = '{_comment(owner)}'"
    client.command(f"KILL QUERY{where} WHERE {comment} SYNC", settings=ON_EVERY_HOST)
    # A DELETE goes on without the query that began it. Its condition has the owner.
    of_owner = f"NOT is_done AND position(command, '{owner}') > 0"
    client.command(f"KILL MUTATION{where} WHERE {of_owner} SYNC", settings=ON_EVERY_HOST)


def _comment(owner: str) -> str:
    return f"icestream job {owner}"
