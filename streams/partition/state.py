"""The state of a partition: everything that a processor remembers of it. `streams.partition.recovery` rebuilds it.

It holds samples and intervals that are retained for each other, which batches came, and which nodes and locations were
announced. All of it is bounded.
"""

import logging
import time
from dataclasses import dataclass, field

from icestream.messages.raw import RawColumns
from icestream.process.byte_cache import ByteCache
from icestream.topics import ACTIVITY, RAW
from icestream.v1.common_pb2 import BatchId
from streams import metrics
from streams.logs.stacks_retention import StacksRetention
from streams.operators.retained import Retained, RetainedLimits
from streams.operators.seen_batches import SeenBatches
from streams.partition.announcer import Announcer
from streams.partition.position import Position

log = logging.getLogger(__name__)

_WARN_AGAIN_S = 3600.0
_LATEST_BYTES = 100


@dataclass
class RunBatches:
    """Which batches of one run of a collector came."""

    raw: SeenBatches = field(default_factory=SeenBatches)
    activity: SeenBatches = field(default_factory=SeenBatches)
    absent: int = 0  # an activity batch that is not awaited: Kafka did not have it when it was promised


@dataclass
class _Latest:
    """The latest run of a collector, by its raw batches."""

    started_unix_nano: int
    warned_s: float = float("-inf")


@dataclass
class PartitionState:
    """State of one partition of icestream.raw and icestream.activity."""

    limits: RetainedLimits = field(default_factory=RetainedLimits)
    retention: StacksRetention = field(default_factory=StacksRetention)  # of announcements
    raw_next: int = 0  # offsets below were processed
    activity_next: int = 0
    raw_checksum: int = 0  # of the message before
    activity_checksum: int = 0
    warned_of_many_intervals: bool = False  # in the log

    def __post_init__(self) -> None:
        self.announcer = Announcer(self.retention)
        self.retained = Retained(self.limits)
        self.runs: ByteCache[tuple[str, int], RunBatches] = ByteCache(0, _run_size)
        """By ID of the collector and time of start."""
        self.latest: ByteCache[str, _Latest] = ByteCache(0, lambda name, latest: len(name) + _LATEST_BYTES)
        """By the ID of the collector."""
        self.share_memory(1)

    def share_memory(self, partitions: int) -> None:
        """Keeps to this partition's share of the limits."""
        self.retained.budget_bytes = self.limits.bytes // partitions
        of_runs = self.limits.run_bytes // partitions
        self.runs.limit_bytes, self.latest.limit_bytes = of_runs // 4 * 3, of_runs // 8
        self.retained.run_budget_bytes = of_runs // 8

    def run(self, batch_id: BatchId) -> RunBatches:
        """Returns what is known about the run of a batch."""
        return self.runs.get_or_make((batch_id.collector, batch_id.started_unix_nano), lambda key: RunBatches())

    def add(self, batch_id: BatchId, topic: str) -> bool:
        """Notes a batch; returns whether it is new. Counts repeats, and batches that are missing before it."""
        run = self.run(batch_id)
        seen = run.raw if topic == RAW else run.activity
        gaps = seen.gaps
        new = seen.add(batch_id.sequence, batch_id.part, batch_id.parts)
        self.runs.put((batch_id.collector, batch_id.started_unix_nano), run)  # its size has changed
        if new:
            metrics.GAPS.labels(topic).inc(seen.gaps - gaps)
        else:
            metrics.REPEATED.labels(topic).inc()
        return new

    def notice_run(self, raw: RawColumns) -> None:
        """Notes the run of each raw batch. Warns if two collectors with one ID run at the same time.

        When a collector is started again, batches of its earlier run may still come, but their windows began earlier.
        """
        name, started = raw.id.collector, raw.id.started_unix_nano
        latest = self.latest.get_or_make(name, lambda name: _Latest(started))
        other, latest.started_unix_nano = latest.started_unix_nano, started
        if not started < other <= raw.start_unix_nano:
            return
        metrics.SHARED_IDS.inc()
        if time.monotonic() - latest.warned_s > _WARN_AGAIN_S:
            latest.warned_s = time.monotonic()
            log.warning(
                "two running collectors have the ID %s (started at %d and %d ns): do two machines have the same"
                " /etc/machine-id? The data of the two runs is kept apart, but has one host ID",
                name, started, other,
            )  # fmt: skip

    def position(self) -> Position:
        """Returns the offsets from which this state can be rebuilt, and the next ones to process."""
        raw_from, activity_from = self.retained.first_raw, self.retained.first_activity
        return Position(
            self.raw_next if raw_from is None else raw_from,
            self.activity_next if activity_from is None else activity_from,
            self.raw_next,
            self.activity_next,
            self.raw_checksum,
            self.activity_checksum,
        )

    def processed(self, topic: str, offset: int, checksum: int) -> None:
        """Notes a message as processed."""
        if topic == RAW and offset >= self.raw_next:
            self.raw_next, self.raw_checksum = offset + 1, checksum
        elif topic == ACTIVITY and offset >= self.activity_next:
            self.activity_next, self.activity_checksum = offset + 1, checksum


def _run_size(key: tuple[str, int], run: RunBatches) -> int:
    return len(key[0]) + run.raw.bytes + run.activity.bytes
