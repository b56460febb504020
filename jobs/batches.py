"""Compares the batches of a source with the stored ones (the table `batches`)."""

from collections.abc import Iterable
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from icestream.topics import ACTIVITY, RAW
from jobs.lake import StoredBatch
from jobs.lake import stored_batches as stored_in_lake
from jobs.lake_rows import JobLake
from jobs.lake_sums import MINUTE_S
from jobs.sources import ArchiveSource
from jobs.time_range import END_SQL, START_SQL, HostMinute, TimeRange
from sinks import archive, stored_batches

_IN_RANGE = f"kind IN ('samples', 'activity') AND rows > 0 AND first_time < {END_SQL} AND last_time >= {START_SQL}"


@dataclass(frozen=True)
class MissingBatch:
    """A batch that is stored, but not in the source."""

    host_id: str
    first_unix_milli: int
    last_unix_milli: int


def missing_batches(
    client: Client, source: ArchiveSource, time_range: TimeRange, lake: JobLake | None = None
) -> list[MissingBatch]:
    """Returns the batches with rows in the range, stored in ClickHouse or the lake, that are not in the source.

    Those past the cut are left out.
    """
    start, end = time_range.start_unix_nano, time_range.end_unix_nano
    in_source = {
        (kind, message.collector, message.started_unix_nano, message.sequence, message.part)
        for kind, topic in ((stored_batches.SAMPLES, RAW), (stored_batches.ACTIVITY, ACTIVITY))
        for message in archive.identities(source.uri, topic, start, end)
        if source.cut.includes(topic, message.cluster, message.partition, message.offset)
    }
    rows = client.query(
        "SELECT kind, collector, started_unix_nano, sequence, part, topic, cluster, partition, offset,"
        " host_id, toUnixTimestamp64Milli(first_time), toUnixTimestamp64Milli(last_time)"
        f" FROM batches WHERE {_IN_RANGE}",
        parameters=time_range.parameters,
    ).result_rows
    in_lake = stored_in_lake(lake, time_range) if lake else []
    return [
        MissingBatch(batch.host_id, batch.first_unix_milli, batch.last_unix_milli)
        for batch in dict.fromkeys([*map(StoredBatch._make, rows), *in_lake])
        if (batch.kind, batch.collector, batch.started_unix_nano, batch.sequence, batch.part) not in in_source
        and source.cut.includes(batch.topic, batch.cluster, batch.partition, batch.offset)
    ]


def host_minutes(batches: Iterable[MissingBatch], time_range: TimeRange) -> set[HostMinute]:
    """Returns the minutes of the range that the batches touch."""
    minutes = set()
    for batch in batches:
        first_unix_s = max(batch.first_unix_milli // 1000, time_range.start_unix_nano // 10**9)
        last_unix_s = min(batch.last_unix_milli // 1000, time_range.end_unix_nano // 10**9)
        for start_unix_s in range(first_unix_s // MINUTE_S * MINUTE_S, last_unix_s + 1, MINUTE_S):
            minutes.add(HostMinute(batch.host_id, start_unix_s))
    return minutes


def describe_stored(client: Client, time_range: TimeRange) -> str:
    """Returns for people what is stored of a range."""
    batches, rows = client.query(
        f"SELECT count(), sum(rows) FROM batches WHERE {_IN_RANGE}", parameters=time_range.parameters
    ).result_rows[0]
    return f"{batches:,} batches with {rows:,} rows"


def describe(batches: list[MissingBatch]) -> str:
    """Returns how many batches of which hosts, for people."""
    hosts = sorted({batch.host_id for batch in batches})
    names = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    return f"{len(batches)} stored batches of {len(hosts)} hosts ({names})"
