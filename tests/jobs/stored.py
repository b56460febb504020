"""Synthetic windows of two hosts, processed as in the live pipeline (some activity is late), stored, and archived."""

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.labels.request_labels import RequestLabels
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import TimeLimits
from icestream.settings import MessageSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS
from jobs.job import Job
from jobs.lake.rows import JobLake
from jobs.locks.fence import Fence
from jobs.recompute.cut import ReadLimits
from jobs.recompute.slices import Work
from jobs.recompute.sources import ArchiveSource
from sinks.archive.archive import Archived, ArchiveSink, time_range
from sinks.clickhouse.migrate import cluster_of_tables
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode
from streams.partition.process import Operators, Processor
from tests.data.windows import Window, window

T0 = 1_769_990_000 * 10**9 // (86_400 * 10**9) * (86_400 * 10**9) - 15 * 10**9
"""A quarter of a minute before a midnight: the range spans two days."""
WINDOWS = 6
REQUEST_LABELS = ("host",)
END = T0 + WINDOWS * 5 * 10**9

SUMS = {
    "samples": "profile_type, service, series_id, host_id, time, pid, tid, stack_id, trace_id, span_id, request_labels",
    "trace_samples": "profile_type, service, series_id, host_id, time, pid, tid, stack_id, trace_id, span_id",
}


@dataclass
class Stored:
    client: Client
    archive: Path
    sink: ClickHouseSink
    outputs: list[tuple[str, bytes]] = field(default_factory=list)  # what the stream processors published
    inputs: int = 0
    processor: Processor = field(default_factory=Processor)
    lake: JobLake | None = None  # that jobs correct, too

    def work(
        self, kind: str, start: int = T0, end: int = 0, operators: Operators | None = None, **options: Any
    ) -> Work:
        """A job on the range, by default all of it, from the archive as it is now."""
        ends = {topic: {0: self.inputs, 1: self.inputs} for topic in (RAW, ACTIVITY)}
        source = ArchiveSource(str(self.archive), ReadLimits("C", ends))
        job = Job(kind=kind, start_unix_nano=start, end_unix_nano=end or END, **options)
        source = replace(source, limits=TimeLimits.from_settings(MessageSettings()))
        fence = Fence(cluster=cluster_of_tables(self.client))
        return Work(
            self.client,
            source,
            lambda: operators or Operators(),
            job,
            fence=fence,
            lake=self.lake,
            request_labels=REQUEST_LABELS,
        )

    def sink_again(self) -> None:
        """Delivers all outputs of the stream processors again, as after a reset of the group's offsets."""
        _sink(self.sink, self.outputs, nonce=random.Random(len(self.outputs)).randbytes(6).hex())

    def process(
        self, host_window: Window, host: int, late_activity: bool = False, forgotten_activity: bool = False
    ) -> list[tuple[str, bytes]]:  # fmt: skip
        """Archives the messages of a window; returns what the stream processors publish, and its activity."""
        at = self.inputs
        self.add(ACTIVITY, host_window.activity, host)
        self.add(RAW, host_window.raw, host)
        messages = [(ACTIVITY, host_window.activity, at), (RAW, host_window.raw, at + 1)]
        published = []
        if forgotten_activity:  # a worker had no room for it, or Kafka has lost it before a worker read it
            messages = messages[1:]
        for topic, value, offset in reversed(messages) if late_activity else messages:
            process = self.processor.activity if topic == ACTIVITY else self.processor.raw
            outputs = process(value, MessageId("C", topic, host, offset))
            published += [(STACKS, m) for m in outputs.stacks] + [(SAMPLES, m) for m in outputs.samples]
        return [*published, (ACTIVITY, host_window.activity)]

    def receive(self, host_window: Window, host: int) -> None:
        """Archives and stores a window, as the live pipeline does when it arrives."""
        self.receive_outputs(self.process(host_window, host))

    def receive_outputs(self, outputs: list[tuple[str, bytes]]) -> None:
        """Stores what the stream processors published."""
        _sink(self.sink, outputs, nonce=random.Random(self.inputs).randbytes(6).hex(), base=self.inputs)
        self.outputs += outputs

    def total(self) -> int:
        return int(self.client.query("SELECT sum(value) FROM samples").result_rows[0][0])

    def add(self, topic: str, value: bytes, host: int = 0, kafka_late_days: int = 0) -> None:
        """To the archive. `kafka_late_days`: how long after its end Kafka got the message."""
        try:
            batch_id, start, end = time_range(topic, value)
            names = (batch_id.collector, batch_id.started_unix_nano, batch_id.sequence, batch_id.part, batch_id.parts)
        except BadMessage:
            names, start, end = ("", 0, 0, 0, 0), T0, T0
        offset, self.inputs = self.inputs, self.inputs + 1
        got_ms = end // 10**6 + kafka_late_days * 86_400_000
        message = Archived("C", host, offset, got_ms, b"", value, *names, start, end)
        ArchiveSink(str(self.archive)).write(
            MessageRange("C", topic, host, InFlight(offset, offset, "0" * 12), [message], False)
        )


class _One(Clients):
    """One client for all."""

    def __init__(self, client: Client) -> None:
        super().__init__("chdb:")
        self._client = client

    def get(self) -> Client:
        return self._client


def make_stored(client: Client, folder: Path, forgotten: Collection[int] = ()) -> Stored:
    """`forgotten`: sequence numbers of windows whose activity the stream processors never saw."""
    stored = Stored(client, folder / "archive", ClickHouseSink(_One(client)))
    stored.sink.check()
    for host in (0, 1):
        for sequence in range(1, WINDOWS + 1):
            stored.outputs += stored.process(
                window(T0, sequence, host), host,
                late_activity=sequence % 3 == 0, forgotten_activity=sequence in forgotten,
            )  # fmt: skip
    _sink(stored.sink, stored.outputs)
    return stored


def tables(client: Client) -> dict[str, Any]:
    """The content of all tables; corrections and what they correct summed up."""
    content: dict[str, Any] = {}
    for table, columns in SUMS.items():
        content[table] = client.query(
            f"SELECT {columns}, sum(count) AS c, sum(value) AS v FROM {table} GROUP BY ALL HAVING c != 0 OR v != 0"
            " ORDER BY ALL"
        ).result_rows
    content["activity"] = client.query("SELECT * FROM activity ORDER BY ALL").result_rows
    for table in ("series", "nodes", "locations", "spans"):
        rows = client.query(f"SELECT * EXCEPT last_seen FROM {table} FINAL ORDER BY ALL" if table != "spans" else
                            "SELECT * FROM spans FINAL ORDER BY ALL").result_rows  # fmt: skip
        content[table] = [str(row) for row in rows]
    content["batches"] = client.query(
        "SELECT kind, collector, sequence, part, rows, value FROM batches WHERE kind != 'corrections' ORDER BY ALL"
    ).result_rows
    return content


def _sink(sink: ClickHouseSink, outputs: list[tuple[str, bytes]], nonce: str = "0" * 12, base: int = 0) -> None:
    sets = RequestLabels(REQUEST_LABELS)
    for first in range(0, len(outputs), 40):
        for topic in (STACKS, SAMPLES, ACTIVITY):
            values = [value for of, value in outputs[first : first + 40] if of == topic]
            decoded = [
                decode(value, MessageId("C", topic, 0, base + first + i), sets=sets) for i, value in enumerate(values)
            ]
            sink.write(MessageRange("C", topic, 0, InFlight(first, first + 39, nonce), decoded, False))
