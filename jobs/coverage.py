"""What the tables have of a time range that a source has not: recomputing that range would lose it."""

from collections.abc import Iterable
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from sinks import stored_batches


@dataclass(frozen=True)
class Missing:
    """A batch that is stored, but not in the source."""

    host_id: str
    first_unix_milli: int
    last_unix_milli: int


def missing(client: Client, start: int, end: int, found: Iterable[stored_batches.BatchKey]) -> list[Missing]:
    """Stored batches with rows in [start, end) Unix nanoseconds whose messages are not among `found`."""
    here = {_message(key) for key in found}
    rows = client.query(
        "SELECT kind, collector, started_unix_nano, sequence, part, output, host_id,"
        " toUnixTimestamp64Milli(first_time), toUnixTimestamp64Milli(last_time) FROM batches"
        " WHERE kind IN ('samples', 'activity') AND rows > 0"
        " AND first_time < fromUnixTimestamp64Milli({end:Int64})"
        " AND last_time >= fromUnixTimestamp64Milli({start:Int64})",
        parameters={"start": start // 10**6, "end": -(-end // 10**6)},
    ).result_rows
    return [Missing(*row[6:]) for row in rows if _message(stored_batches.BatchKey(*row[:6])) not in here]


def summary(batches: list[Missing]) -> str:
    """For people."""
    hosts = sorted({batch.host_id for batch in batches})
    some = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    return f"{len(batches)} stored batches of {len(hosts)} hosts ({some})"


def _message(key: stored_batches.BatchKey) -> tuple[str, str, int, int, int]:
    """Which message, whichever of its outputs."""
    return key[:5]
