"""Runs the operators on many raw batches at once; returns the rows that live processing would store of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from icestream.columns import index_ranges
from icestream.labels.request_labels import NO_LABELS, RequestLabels
from icestream.messages import identify
from icestream.messages.checks import Labels
from icestream.messages.message_id import MessageId
from icestream.messages.raw import RawColumns
from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.messages.stacks import decode_stacks
from icestream.times import DAY_NS
from jobs.recompute.merged import MergedBatches, merge
from jobs.recompute.unit_activity import UnitActivity
from sinks.clickhouse import stored_batches
from sinks.clickhouse.stored_batches import Batch
from sinks.runner.seen import SeriesDays
from sinks.tables.samples import SampleArrays, sample_rows, series_table
from sinks.tables.stacks import StackTables, stack_tables
from streams.operators import deduplicate
from streams.operators.sample_encoder import cut
from streams.operators.series_encoder import SeriesEncoder
from streams.partition.process import Operators

_MS = 10**6

Input = tuple[MessageId, RawColumns]


@dataclass
class OperatorState:
    """The operators, and what a process remembers from unit to unit.

    It returns a node, location or series once a day: the slice that had it is stored, or done again by another process.
    """

    operators: Operators
    announced: deduplicate.Announced = field(default_factory=deduplicate.Announced)
    series: SeriesEncoder = field(default_factory=SeriesEncoder)
    series_days: SeriesDays = field(default_factory=SeriesDays)
    sets: RequestLabels = NO_LABELS


class OutputRows(NamedTuple):
    """The rows of some batches."""

    batches: list[tuple[int, Batch]]
    """Rows of `batches`, each with the index of the input that it comes from."""
    samples: pa.Table
    series: pa.Table
    stacks: list[StackTables]


class _Range(NamedTuple):
    """Rows of samples that live processing publishes as one message: output `output` of `outputs` of an input."""

    input: int
    output: int
    outputs: int
    first: int
    end: int


def outputs(known: OperatorState, activity: UnitActivity, inputs: Sequence[Input]) -> OutputRows:
    """`inputs`: batches of one day, each once. Raises ValueError if an operator returned values that do not fit."""
    merged = merge([raw for _, raw in inputs])
    raw = merged.columns
    stack_id = identify.stack_ids(raw)
    stacks = _announce(known, merged, stack_id)
    attached = activity.attach(merged, known.operators.attach)
    series = [known.series.encode(labels) for labels in raw.series]
    ranges = _ranges(merged, [one.message for one in series], attached.context)
    time_unix_milli = raw.time_unix_nano // _MS
    batches = _batches(inputs, ranges, time_unix_milli, raw)
    samples = SampleArrays(
        series_id=np.array([one.id for one in series], np.uint64),
        labels=raw.series,
        contexts=attached.contexts,
        time_unix_milli=time_unix_milli,
        series=raw.sample_series,
        pid=raw.sample_pid,
        tid=raw.sample_tid,
        stack_id=stack_id[raw.sample_stack],
        context=attached.context,
        count=raw.sample_count,
        value=raw.sample_value,
    )
    rows = sample_rows(samples, batches, [one.end - one.first for one in ranges], known.sets)
    used = {series[row].id: raw.series[row] for row in np.unique(raw.sample_series).tolist()}
    return OutputRows(
        [(one.input, batch) for one, batch in zip(ranges, batches, strict=True)],
        rows,
        _new_series(known, used, int(time_unix_milli.max(initial=raw.start_unix_nano // _MS)) * _MS),
        stacks,
    )


def _announce(known: OperatorState, merged: MergedBatches, stack_id: np.ndarray) -> list[StackTables]:
    """Returns the nodes and locations that were not returned for this day yet."""
    raw = merged.columns
    period = known.announced.period(raw.start_unix_nano)
    new = deduplicate.unannounced(period, raw, stack_id)
    if new is None:
        return []
    rows = new.location_rows
    messages = encode_stacks(
        None,
        raw.published_unix_nano,
        max(batch.start_unix_nano for batch in merged.batches),
        NodeColumns(new.node_id, new.node_parent_id, new.node_location_id),
        LocationColumns(
            id=new.location_id,
            address=raw.location_address[rows],
            mapping=raw.location_mapping[rows],
            mappings=raw.mappings,
            names=_names(known.operators, merged, rows, new.location_id),
        ),
    )
    return [stack_tables(decode_stacks(message)) for message in messages]


def _names(
    operators: Operators, merged: MergedBatches, rows: np.ndarray, location_id: np.ndarray
) -> list[LocationNames]:
    """Returns the names of locations: rows, and their IDs. The operator gets each batch, and its rows in that."""
    names: dict[int, LocationNames] = {}
    starts = index_ranges.starts(merged.locations)
    owner = np.searchsorted(starts + merged.locations, rows, side="right")
    for number in np.unique(owner).tolist():
        is_own = owner == number
        own = rows[is_own]
        named = operators.symbolize(merged.batches[number], own - starts[number], location_id[is_own])
        names |= zip(own.tolist(), named, strict=True)
    return [names[row] for row in rows.tolist()]


def _ranges(merged: MergedBatches, series: Sequence[bytes], context: np.ndarray) -> list[_Range]:
    ranges = []
    first_row = first_series = 0
    for number, batch in enumerate(merged.batches):
        end = first_row + len(batch.time_unix_nano)
        contexts = bool(len(batch.contexts)) or bool(context[first_row:end].any())
        own_series = series[first_series : first_series + len(batch.series)]
        pieces = cut(own_series, batch.sample_series, contexts)
        for output, piece in enumerate(pieces):
            ranges.append(_Range(number, output, len(pieces), first_row + piece[0], first_row + piece[1]))
        first_row, first_series = end, first_series + len(batch.series)
    return ranges


def _batches(
    inputs: Sequence[Input], ranges: Sequence[_Range], time_unix_milli: np.ndarray, raw: RawColumns
) -> list[Batch]:
    """Returns the row of `batches` of each range."""
    rows = np.array([one.end - one.first for one in ranges])
    first = np.array([inputs[one.input][1].start_unix_nano // _MS for one in ranges])
    last, count, value = first.copy(), np.zeros_like(rows), np.zeros_like(rows)
    some = np.flatnonzero(rows)
    if len(some):
        at = np.array([one.first for one in ranges])[some]
        first[some] = np.minimum.reduceat(time_unix_milli, at)
        last[some] = np.maximum.reduceat(time_unix_milli, at)
        count[some] = np.add.reduceat(raw.sample_count.astype(np.int64), at)
        value[some] = np.add.reduceat(raw.sample_value, at)
    figures = np.stack([first, last, rows, count, value], axis=1).tolist()
    return [_batch(*inputs[one.input], one, of_range) for one, of_range in zip(ranges, figures, strict=True)]


def _batch(message_id: MessageId, raw: RawColumns, of: _Range, figures: Sequence[int]) -> Batch:
    """`figures`: first and last time, rows, and the sums of count and value."""
    first, last, rows, count, value = figures
    return Batch(
        kind=stored_batches.SAMPLES,
        **stored_batches.identity(raw.id),
        output=of.output,
        outputs=of.outputs,
        host_id=raw.host_id,
        profile_type=raw.profile_type,
        cluster=message_id.cluster,
        topic=message_id.topic,
        partition=message_id.partition,
        offset=message_id.offset,
        first_time=first,
        last_time=last,
        rows=rows,
        count=count,
        value=value,
        published_time=raw.published_unix_nano // _MS,
        period=raw.period,
        configured_period=raw.configured_period,
        lost_samples=raw.lost_samples if of.output == 0 else 0,
        dropped_samples=raw.dropped_samples if of.output == 0 else 0,
    )


def _new_series(known: OperatorState, series: dict[int, Labels], last_unix_nano: int) -> pa.Table:
    """Returns the series that were not returned for this day yet."""
    day = last_unix_nano // DAY_NS
    new = {series_id: labels for series_id, labels in series.items() if not known.series_days.written(series_id, day)}
    known.series_days.add(new, day)
    return series_table(new, last_unix_nano)
