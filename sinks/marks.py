"""Which batches are stored: the rows of the table `batches`.

A batch is known by its batch ID, whoever sends it and from whichever offset: the stream processor that sends an output
again after a restart, and the collector that sends a window again from its spool, change nothing. A batch without an ID
(of somebody else's producer) is known by its place in Kafka.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypedDict

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.v1.common_pb2 import BatchId

SAMPLES = "samples"
CORRECTIONS = "corrections"
ACTIVITY = "activity"
ALL_OUTPUTS = 2**32 - 1
"""As `output`: whatever is made of that message is stored already, in another form."""
_ASK_AT_ONCE = 500


class Mark(NamedTuple):
    """What a batch is recognised by."""

    kind: str
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    output: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A row of `batches`, without `block`; its columns are explained in the migration."""

    kind: str
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    parts: int
    output: int
    outputs: int
    host_id: str
    profile_type: str
    cluster: str
    topic: str
    partition: int
    offset: int
    first_time: int  # milliseconds since 1970
    last_time: int
    rows: int
    count: int
    value: int
    published_time: int  # milliseconds since 1970

    @property
    def mark(self) -> Mark:
        return Mark(self.kind, self.collector, self.started_unix_nano, self.sequence, self.part, self.output)


class Identity(TypedDict):
    """The fields of `Batch` that say which message of Kafka it is."""

    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    parts: int


def identity(batch: BatchId, cluster: str, topic: str, partition: int, offset: int) -> Identity:
    """The fields of `Batch` that it is known by in Kafka: of its ID, or of its place where it has none."""
    if batch.collector and batch.sequence:
        return {
            "collector": batch.collector, "started_unix_nano": batch.started_unix_nano, "sequence": batch.sequence,
            "part": batch.part, "parts": max(batch.parts, 1),
        }  # fmt: skip
    return {
        "collector": f"{cluster}/{topic}/{partition}", "started_unix_nano": 0, "sequence": max(offset, 0),
        "part": 0, "parts": 1,
    }  # fmt: skip


def stored(client: Client, marks: Iterable[Mark]) -> dict[Mark, str]:
    """Those of `marks` that are stored, with the block they were inserted in."""
    wanted = list(dict.fromkeys(marks))
    found: dict[Mark, str] = {}
    for start in range(0, len(wanted), _ASK_AT_ONCE):
        some = wanted[start : start + _ASK_AT_ONCE]
        rows = client.query(
            "SELECT kind, collector, started_unix_nano, sequence, part, output, block FROM batches"
            " WHERE kind IN {kinds:Array(String)}"
            " AND (collector, started_unix_nano, sequence) IN {keys:Array(Tuple(String, UInt64, UInt64))}",
            parameters={
                "kinds": list({mark.kind for mark in some}),
                "keys": list({(mark.collector, mark.started_unix_nano, mark.sequence) for mark in some}),
            },
        ).result_rows
        found |= {Mark(*row[:6]): row[6] for row in rows}
    everything = {mark: mark._replace(output=ALL_OUTPUTS) for mark in wanted}
    return {
        mark: found[mark] if mark in found else found[everything[mark]]
        for mark in wanted
        if mark in found or everything[mark] in found
    }


def table(batches: list[Batch], block: str) -> pa.Table:
    """Rows to insert into `batches`."""
    return pa.Table.from_pylist([asdict(batch) | {"block": block} for batch in batches], schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        ("kind", pa.string()), ("collector", pa.string()), ("started_unix_nano", pa.uint64()),
        ("sequence", pa.uint64()), ("part", pa.uint32()), ("parts", pa.uint32()), ("output", pa.uint32()),
        ("outputs", pa.uint32()), ("host_id", pa.string()), ("profile_type", pa.string()), ("cluster", pa.string()),
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("first_time", pa.timestamp("ms", "UTC")), ("last_time", pa.timestamp("ms", "UTC")),
        ("rows", pa.uint64()), ("count", pa.int64()), ("value", pa.int64()),
        ("published_time", pa.timestamp("ms", "UTC")), ("block", pa.string()),
    ]
)  # fmt: skip
