"""The table `batches`: which batches are stored.

A batch is recognised by its batch ID, whoever sends it and from whichever offset. So nothing changes when a stream
processor sends an output again after a restart, or when a collector sends a window again from its spool.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.v1.common_pb2 import BatchId
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, of_all_replicas

SAMPLES = "samples"
CORRECTIONS = "corrections"
ACTIVITY = "activity"
ALL_OUTPUTS = 2**32 - 1
"""The value of `output` in a row that stands for every output of its message: they are stored in another form."""
_KEYS_PER_QUERY = 500


class BatchKey(NamedTuple):
    """What a stored batch is recognised by."""

    kind: str
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    output: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A row of the table `batches`, without `block`. `sinks/schema/batches.sql` explains the columns."""

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
    period: int = 0
    configured_period: int = 0
    lost_samples: int = 0
    dropped_samples: int = 0

    @property
    def key(self) -> BatchKey:
        return BatchKey(self.kind, self.collector, self.started_unix_nano, self.sequence, self.part, self.output)

    @property
    def run(self) -> str:
        """`batch_run` of the rows of this batch; `sequence` is their `batch_sequence`."""
        return f"{self.kind}/{self.collector}/{self.started_unix_nano}/{self.part}"


class BatchIdFields(TypedDict):
    """The fields of `Batch` that a BatchId holds."""

    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    parts: int


def identity(batch_id: BatchId) -> BatchIdFields:
    """Returns the fields that identify a batch."""
    return {
        "collector": batch_id.collector,
        "started_unix_nano": batch_id.started_unix_nano,
        "sequence": batch_id.sequence,
        "part": batch_id.part,
        "parts": batch_id.parts,
    }


def find(client: Client, keys: Iterable[BatchKey], cluster: Cluster = ONE_SERVER) -> dict[BatchKey, str]:
    """Returns those of `keys` that are stored, each with the block that it was inserted in.

    On a cluster it asks all replicas, because the one that answers may lag behind the one that took the last insert.
    Inserts wait for a majority of the replicas, and fail without one: a majority knows every stored batch.
    """
    settings = {"skip_unavailable_shards": 1} if cluster.name else None
    wanted = list(dict.fromkeys(keys))
    blocks: dict[BatchKey, str] = {}
    for start in range(0, len(wanted), _KEYS_PER_QUERY):
        chunk = wanted[start : start + _KEYS_PER_QUERY]
        rows = client.query(
            f"SELECT kind, collector, started_unix_nano, sequence, part, output, block"
            f" FROM {of_all_replicas('batches', cluster)}"
            " WHERE kind IN {kinds:Array(String)}"
            " AND (collector, started_unix_nano, sequence) IN {ids:Array(Tuple(String, UInt64, UInt64))}",
            parameters={
                "kinds": list({key.kind for key in chunk}),
                "ids": list({(key.collector, key.started_unix_nano, key.sequence) for key in chunk}),
            },
            settings=settings,
        ).result_rows
        blocks |= {BatchKey(*row[:6]): row[6] for row in rows}
    stored: dict[BatchKey, str] = {}
    for key in wanted:
        block = blocks.get(key, blocks.get(key._replace(output=ALL_OUTPUTS)))
        if block is not None:
            stored[key] = block
    return stored


def table(batches: list[Batch], block: str) -> pa.Table:
    """Returns the rows to insert into `batches`."""
    columns = {name: [getattr(batch, name) for batch in batches] for name in _SCHEMA.names if name != "block"}
    return pa.table(columns | {"block": [block] * len(batches)}, schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        ("kind", pa.string()), ("collector", pa.string()), ("started_unix_nano", pa.uint64()),
        ("sequence", pa.uint64()), ("part", pa.uint32()), ("parts", pa.uint32()), ("output", pa.uint32()),
        ("outputs", pa.uint32()), ("host_id", pa.string()), ("profile_type", pa.string()), ("cluster", pa.string()),
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("first_time", pa.timestamp("ms", "UTC")), ("last_time", pa.timestamp("ms", "UTC")),
        ("rows", pa.uint64()), ("count", pa.int64()), ("value", pa.int64()),
        ("published_time", pa.timestamp("ms", "UTC")), ("period", pa.uint64()), ("configured_period", pa.uint64()),
        ("lost_samples", pa.uint64()), ("dropped_samples", pa.uint64()), ("block", pa.string()),
    ]
)  # fmt: skip
