"""Compares the batches of a source with the stored ones (the table `batches`)."""

from collections.abc import Collection, Iterable, Set

from clickhouse_connect.driver.client import Client

from icestream.topics import ACTIVITY, RAW
from jobs.lake.lake import StoredBatch
from jobs.lake.lake import stored_batches as stored_in_lake
from jobs.lake.rows import JobLake
from jobs.recompute.cut import KnownMessages
from jobs.recompute.slices import Work
from jobs.recompute.sources import ArchiveSource
from jobs.staging.staging import BatchName, Staging
from jobs.time_range import END_SQL, MINUTE_S, START_SQL, HostMinute, JobTimeRange
from sinks.archive import archive
from sinks.archive.archive import OnDamage
from sinks.clickhouse import stored_batches

_IN_RANGE = f"kind IN ('samples', 'activity') AND rows > 0 AND first_time < {END_SQL} AND last_time >= {START_SQL}"
_ENDS = ("first_time", "last_time")
_REACH_MS = 1000
"""An interval may give traces to samples for as long after its start: icestream.tracing sends parts of 0.2 s."""


def batches_of(source: ArchiveSource, time_range: JobTimeRange, on_damage: OnDamage) -> set[BatchName]:
    """Returns the batches of the source with something in the range. Raises OSError and ValueError."""
    start, end = time_range.start_unix_nano, time_range.end_unix_nano
    return {
        (kind, message.collector, message.started_unix_nano, message.sequence, message.part)
        for kind, topic in ((stored_batches.SAMPLES, RAW), (stored_batches.ACTIVITY, ACTIVITY))
        for message in archive.identities(source.uri, topic, start, end, on_damage, source.cut.wanted(topic))
    }


def known_before(
    client: Client, archive_uri: str, time_range: JobTimeRange, lake: JobLake | None
) -> list[KnownMessages]:
    """Returns what is archived and stored of a range, to be asked before the cut is taken. Raises OSError, ValueError,
    and the client's errors."""
    known = []
    start, end = time_range.start_unix_nano, time_range.end_unix_nano
    if archive_uri:
        known += [
            KnownMessages(topic, file.cluster, file.partition, file.last + 1, file.name)
            for topic in (RAW, ACTIVITY)
            for file in archive.files(archive_uri, topic, start, end)
        ]
    rows = client.query(
        f"SELECT topic, cluster, partition, max(offset) + 1 FROM batches WHERE {_IN_RANGE} GROUP BY ALL",
        parameters=time_range.parameters,
    ).result_rows
    known += [KnownMessages(*row) for row in rows]
    in_lake = stored_in_lake(lake, time_range) if lake else []
    return known + [KnownMessages(batch.topic, batch.cluster, batch.partition, batch.offset + 1) for batch in in_lake]


def missing_batches(work: Work, time_range: JobTimeRange, there: Set[BatchName]) -> list[StoredBatch]:
    """Returns the batches with rows in the range, stored in ClickHouse or the lake, that are not `there`.

    Those past the cut are left out.
    """
    rows = work.client.query(
        "SELECT kind, collector, started_unix_nano, sequence, part, topic, cluster, partition, offset,"
        " host_id, toUnixTimestamp64Milli(first_time), toUnixTimestamp64Milli(last_time)"
        f" FROM batches WHERE {_IN_RANGE}",
        parameters=time_range.parameters,
    ).result_rows
    in_lake = stored_in_lake(work.lake, time_range) if work.lake else []
    return [
        batch
        for batch in dict.fromkeys([*map(StoredBatch._make, rows), *in_lake])
        if (batch.kind, batch.collector, batch.started_unix_nano, batch.sequence, batch.part) not in there
        and work.source.cut.was_stored(batch.topic, batch.cluster, batch.partition, batch.offset)
    ]


def outside(staging: Staging, minutes: Collection[HostMinute]) -> str:
    """Returns the SQL condition that a staged batch lies in none of these minutes of hosts."""
    if not minutes:
        return "1"
    alone = staging.fill_minutes(minutes)
    ends = (f"(host_id, toInt64(toUnixTimestamp(toStartOfMinute({time})))) NOT IN {alone}" for time in _ENDS)
    return f"({' AND '.join(ends)})"


def host_minutes(batches: Iterable[StoredBatch], time_range: JobTimeRange) -> set[HostMinute]:
    """Returns the minutes of the range that the batches touch."""
    minutes = set()
    for batch in batches:
        first_unix_s = max(batch.first_unix_milli // 1000, time_range.start_unix_nano // 10**9)
        reach_ms = _REACH_MS if batch.kind == stored_batches.ACTIVITY else 0
        last_unix_s = min((batch.last_unix_milli + reach_ms) // 1000, time_range.end_unix_nano // 10**9)
        for start_unix_s in range(first_unix_s // MINUTE_S * MINUTE_S, last_unix_s + 1, MINUTE_S):
            minutes.add(HostMinute(batch.host_id, start_unix_s))
    return minutes


def describe_stored(client: Client, time_range: JobTimeRange) -> str:
    """Returns for people what is stored of a range."""
    batches, rows = client.query(
        f"SELECT count(), sum(rows) FROM batches WHERE {_IN_RANGE}", parameters=time_range.parameters
    ).result_rows[0]
    return f"{batches:,} batches with {rows:,} rows"


def describe(batches: list[StoredBatch]) -> str:
    """Returns how many batches of which hosts, for people."""
    hosts = sorted({batch.host_id for batch in batches})
    names = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    return f"{len(batches)} stored batches of {len(hosts)} hosts ({names})"
