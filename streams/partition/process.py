"""Runs the operators: turns messages of icestream.raw and icestream.activity into outputs.

This module does not use Kafka. `streams.app` feeds a Processor from topics. Jobs run the same operators on many batches
at once (jobs/recompute/outputs.py). They have all activity of a time range before that, so they neither wait nor
correct.

**Order.** A partition's outputs depend on the order in which its raw and activity messages are given. Raw messages come
in the order of their offsets, and so do activity messages. The caller chooses how the two interleave. Every output
names that order in `OutputMessages.position`, from which `streams.partition.recovery` rebuilds a worker's state.

**Late activity.** A sample without a context is retained (streams.operators.retained). When an interval comes that
covers it, a correction is published. Its source is the activity message; it takes the value back from "no trace" and
gives it to the trace, once.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from icestream.messages import identify
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.messages.message_id import MessageId
from icestream.messages.raw import GATEWAY, RawColumns, decode_raw
from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.topics import ACTIVITY, RAW
from streams import metrics
from streams.logs.stacks_retention import StacksRetention
from streams.operators.attach import Attached, ThreadIntervals, traced
from streams.operators.attach import attach as attach_intervals
from streams.operators.context_operations import operations
from streams.operators.correct import corrections
from streams.operators.retained import RetainedLimits, RetainedSamples, RunId
from streams.operators.sample_encoder import RawFigures, SampleRows, encode_samples
from streams.operators.series_encoder import SeriesEncoder
from streams.operators.symbolize import Symbolizer
from streams.partition.position import Position
from streams.partition.state import PartitionState

log = logging.getLogger(__name__)

Symbolize = Callable[[RawColumns, np.ndarray, np.ndarray], list[LocationNames]]
"""Takes a batch, rows of its locations, and their IDs; returns their names."""


@dataclass(frozen=True)
class Operators:
    """The operators that a backfill may replace."""

    change: Callable[[RawColumns], RawColumns] | None = None  # called first, with every batch
    attach: Callable[[RawColumns, ThreadIntervals], Attached] = attach_intervals
    symbolize: Symbolize = field(default_factory=lambda: Symbolizer(None).names)

    def changed(self, raw: RawColumns) -> RawColumns:
        """Returns a batch as `change` makes it."""
        if self.change is None:
            return raw
        raw = self.change(raw)
        # Its stacks may be others now.
        return replace(raw, stack_id=np.zeros(len(raw.stack_depth), np.uint64))


@dataclass(frozen=True)
class OutputMessages:
    """The outputs of one input message; empty if its batch was processed before."""

    key: bytes  # of all outputs: the host ID
    stacks: list[bytes] = field(default_factory=list)  # for icestream.stacks
    samples: list[bytes] = field(default_factory=list)  # for icestream.samples
    position: Position = field(default_factory=Position)  # after the message


class Processor:
    """Processes messages of any number of partitions; not thread-safe."""

    def __init__(
        self,
        operators: Operators | None = None,
        limits: RetainedLimits | None = None,
        retention: StacksRetention | None = None,
    ) -> None:
        """`retention`: what Kafka keeps of a partition of icestream.stacks."""
        self._operators = operators or Operators()
        self._limits = limits or RetainedLimits()
        self._retention = retention or StacksRetention()
        self._partitions: dict[int, PartitionState] = {}
        self._series = SeriesEncoder()

    def partition(self, number: int) -> PartitionState:
        """Returns the state of a partition, which is made at the first call."""
        if number not in self._partitions:
            self._partitions[number] = PartitionState(self._limits, self._retention)
            self._share_memory()
        return self._partitions[number]

    def forget(self, number: int) -> None:
        """Drops the state of a partition."""
        self._partitions.pop(number, None)
        self._share_memory()

    def _share_memory(self) -> None:
        for state in self._partitions.values():
            state.share_memory(len(self._partitions))

    def raw(self, message: bytes, message_id: MessageId) -> OutputMessages:
        """Processes a RawBatch. Raises BadMessage, with nothing changed."""
        return self.raw_columns(decode_raw(message), message_id)

    def activity(self, message: bytes, message_id: MessageId) -> OutputMessages:
        """Processes an ActivityBatch. Raises BadMessage, with nothing changed."""
        return self.activity_columns(decode_activity(message), message_id)

    def awaits_activity(self, raw: RawColumns, partition: int) -> bool:
        """Returns whether activity that the collector promised for this batch is missing, and there is room for it."""
        state = self.partition(partition)
        run = state.run(raw.id)
        promised = raw.activity_sequence
        missing = promised != run.absent and not run.activity.complete(promised)
        if missing and state.retained.many_intervals and not state.warned_of_many_intervals:
            state.warned_of_many_intervals = True
            log.warning(
                "partition %d: raw batches no longer wait for activity, because its intervals take 3/8 of their memory:"
                " raise ICESTREAM_ATTACH_MEMORY_MB", partition,
            )  # fmt: skip
        return missing and not state.retained.many_intervals

    def activity_is_absent(self, raw: RawColumns, partition: int) -> None:
        """Notes that Kafka does not have the activity that the collector promised for this batch."""
        self.partition(partition).run(raw.id).absent = raw.activity_sequence

    def activity_is_ahead(self, activity: ActivityColumns, partition: int) -> bool:
        """Returns whether raw batches should be processed before this activity."""
        return self.partition(partition).retained.is_ahead(activity)

    def raw_columns(self, raw: RawColumns, message_id: MessageId) -> OutputMessages:
        """As `raw`, for a decoded message."""
        started = time.perf_counter()
        state = self.partition(message_id.partition)
        state.processed(RAW, message_id.offset, message_id.checksum)
        key = raw.host_id.encode()
        state.notice_run(raw)
        if not state.add(raw.id, RAW):
            return OutputMessages(key, position=state.position())
        raw = self._operators.changed(raw)
        stack_id = identify.stack_ids(raw)
        announced = self._announce(state, raw, stack_id, message_id)
        samples = self._samples(state, raw, stack_id, message_id)
        metrics.MESSAGES.labels(RAW).inc()
        metrics.LOST_SAMPLES.inc(raw.lost_samples + raw.dropped_samples)
        metrics.SECONDS.labels(RAW).observe(time.perf_counter() - started)
        return OutputMessages(key, announced, samples, state.position())

    def activity_columns(self, activity: ActivityColumns, message_id: MessageId) -> OutputMessages:
        """As `activity`, for a decoded message."""
        started = time.perf_counter()
        state = self.partition(message_id.partition)
        state.processed(ACTIVITY, message_id.offset, message_id.checksum)
        key = activity.host_id.encode()
        if activity.id.collector.startswith(GATEWAY):  # spans, which concern sinks only; each batch is a run of its own
            return OutputMessages(key, position=state.position())
        if not state.add(activity.id, ACTIVITY):
            return OutputMessages(key, position=state.position())
        intervals = traced(activity)
        corrected = corrections(state.retained, activity, intervals)
        seen = state.run(activity.id).activity
        state.retained.add_activity(message_id.offset, activity, intervals, seen)
        samples = encode_samples(message_id.source(activity.id), corrected)
        metrics.CORRECTIONS.inc(sum(len(rows.tid) for rows in corrected) // 2)
        metrics.MESSAGES.labels(ACTIVITY).inc()
        metrics.SECONDS.labels(ACTIVITY).observe(time.perf_counter() - started)
        return OutputMessages(key, [], samples, state.position())

    def _announce(
        self, state: PartitionState, raw: RawColumns, stack_id: np.ndarray, message_id: MessageId
    ) -> list[bytes]:
        """Returns messages of the nodes and locations of this batch that must be announced."""
        announcement = state.announcer.unannounced(raw, stack_id)
        if announcement is None:
            return []
        metrics.NODES.inc(len(announcement.node_id))
        rows = announcement.location_rows
        messages = encode_stacks(
            message_id.source(raw.id),
            raw.published_unix_nano,
            raw.start_unix_nano,
            NodeColumns(announcement.node_id, announcement.node_parent_id, announcement.node_location_id),
            LocationColumns(
                id=announcement.location_id,
                address=raw.location_address[rows],
                mapping=raw.location_mapping[rows],
                mappings=raw.mappings,
                names=self._operators.symbolize(raw, rows, announcement.location_id),
            ),
        )
        state.announcer.wrote(announcement, sum(map(len, messages)))
        return messages

    def _samples(
        self, state: PartitionState, raw: RawColumns, stack_id: np.ndarray, message_id: MessageId
    ) -> list[bytes]:
        """Returns messages of a batch's samples; remembers the samples without a context."""
        intervals = state.retained.intervals(raw)
        attached = self._operators.attach(raw, intervals)
        metrics.SAMPLES.labels("bpf").inc(attached.by_bpf)
        metrics.SAMPLES.labels("join").inc(attached.by_join)
        metrics.SAMPLES.labels("none").inc(len(raw.time_unix_nano) - attached.by_bpf - attached.by_join)
        series = [self._series.encode(labels).message for labels in raw.series]
        rows = SampleRows(
            host_id=raw.host_id,
            profile_type=raw.profile_type,
            published_unix_nano=raw.published_unix_nano,
            series=series,
            contexts=attached.contexts,
            operations=operations(attached.contexts, intervals),
            time_unix_nano=raw.time_unix_nano,
            sample_series=raw.sample_series,
            pid=raw.sample_pid,
            tid=raw.sample_tid,
            stack_id=stack_id[raw.sample_stack],
            context=attached.context,
            count=raw.sample_count,
            value=raw.sample_value,
            raw=RawFigures(
                raw.start_unix_nano, raw.period, raw.configured_period, raw.lost_samples, raw.dropped_samples
            ),
        )
        without_context = _samples_to_retain(rows, raw, message_id.offset)
        state.retained.add_samples(raw, without_context, state.run(raw.id).activity)
        return encode_samples(message_id.source(raw.id), [rows])


def _samples_to_retain(rows: SampleRows, raw: RawColumns, offset: int) -> RetainedSamples:
    """Returns the rows without a context."""
    without = np.flatnonzero(rows.context == 0)
    return RetainedSamples(
        offset=offset,
        run_id=RunId.from_batch(raw),
        profile_type=rows.profile_type,
        end_monotonic_ns=raw.end_monotonic_ns,
        clock_offset_ns=raw.clock_offset_ns,
        series=rows.series,
        sample_series=rows.sample_series[without],
        time_unix_nano=rows.time_unix_nano[without],
        pid=rows.pid[without],
        tid=rows.tid[without],
        stack_id=rows.stack_id[without],
        count=rows.count[without],
        value=rows.value[without],
    )
