"""The fence: a job that stood still, and whose range another job has taken over, changes nothing any more.

Its process may wake between any two statements, or the server may still execute one. So each statement that changes
live tables names the owner of the lock, in its condition and in its settings:
- A statement that begins after the takeover finds that the lock has ended, and selects no rows.
- The job that takes over ends the statements that began before, and only then deletes or inserts anything.
"""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

ENDED_SQL = "fromUnixTimestamp64Milli(0)"
"""`expires_time` of a lock that was given back, or taken over."""


@dataclass(frozen=True)
class Fence:
    """The fence of one run of a job."""

    owner: str = ""
    """Of the lock, hexadecimal; "": there is no lock that another job could take over."""

    @property
    def condition(self) -> str:
        """The SQL condition that the job still has its lock."""
        return f"(SELECT count() FROM job_locks WHERE owner = '{self.owner}' AND expires_time = {ENDED_SQL}) = 0"

    @property
    def settings(self) -> dict[str, str]:
        """The settings by which `end_statements` finds a statement."""
        return {"log_comment": _comment(self.owner)}


NO_FENCE = Fence()


def end_statements(client: Client, owner: str) -> None:
    """Ends the statements of an owner, which has lost its lock, that the server still executes."""
    client.command(f"KILL QUERY WHERE Settings['log_comment'] = '{_comment(owner)}' SYNC")
    # A DELETE goes on without the query that began it. Its condition has the owner.
    client.command(
        f"KILL MUTATION WHERE database = currentDatabase() AND NOT is_done AND position(command, '{owner}') > 0 SYNC"
    )


def _comment(owner: str) -> str:
    return f"icestream job {owner}"
