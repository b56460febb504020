"""Compares the batches of a source with the stored ones (the table `batches`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from jobs.staging import insert_settings
from jobs.time_range import END_SQL, START_SQL, TimeRange
from sinks import stored_batches
from sinks.stored_batches import Batch, BatchKey


@dataclass(frozen=True)
class MissingBatch:
    """A batch that is stored, but not in the source. Recomputing its time would lose its rows."""

    host_id: str
    first_unix_milli: int
    last_unix_milli: int


def missing_batches(client: Client, time_range: TimeRange, source_keys: Iterable[BatchKey]) -> list[MissingBatch]:
    """Returns the stored batches with rows in the range whose messages are not among those of `source_keys`."""
    in_source = {_message(key) for key in source_keys}
    rows = client.query(
        "SELECT kind, collector, started_unix_nano, sequence, part, output, host_id,"
        " toUnixTimestamp64Milli(first_time), toUnixTimestamp64Milli(last_time) FROM batches"
        f" WHERE kind IN ('samples', 'activity') AND rows > 0 AND first_time < {END_SQL} AND last_time >= {START_SQL}",
        parameters=time_range.parameters,
    ).result_rows
    return [MissingBatch(*row[6:]) for row in rows if _message(BatchKey(*row[:6])) not in in_source]


def new_batches(client: Client, batches: Mapping[BatchKey, Batch]) -> list[Batch]:
    """Returns those of the batches that are not stored."""
    stored = stored_batches.find(client, batches)
    return [batch for key, batch in batches.items() if key not in stored]


def mark_stored(client: Client, batches: list[Batch], block: str) -> None:
    """Adds batches to the table `batches`, so that the sink skips their messages from now on."""
    if batches:
        client.insert_arrow("batches", stored_batches.table(batches, block), settings=insert_settings())


def describe(batches: list[MissingBatch]) -> str:
    """Returns how many batches of which hosts, for people."""
    hosts = sorted({batch.host_id for batch in batches})
    names = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    return f"{len(batches)} stored batches of {len(hosts)} hosts ({names})"


def _message(key: BatchKey) -> tuple[str, str, int, int, int]:
    """Returns the part of the key that all outputs of a message share."""
    return key[:5]
