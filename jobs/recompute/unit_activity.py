"""The intervals of a unit: a job reads all of them before any sample; they give the samples their trace contexts."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from icestream.columns import index_ranges, sorted_keys
from icestream.messages.activity import ActivityColumns
from icestream.messages.raw import RawColumns
from jobs.recompute.merged import MergedBatches
from streams.operators.attach import (
    Attached,
    ThreadIntervals,
    attach,
    attach_threads,
    concatenate,
    in_order,
    join,
    thread_keys,
    unordered,
)
from streams.operators.retained import RunId

Attach = Callable[[RawColumns, ThreadIntervals], Attached]
_NOWHERE = np.uint64(2**64 - 1)


class UnitActivity:
    """The intervals with a trace, by the run of their collector: only samples of the same run may meet them.

    The parts are in no order: those that samples may meet are sorted together.
    """

    def __init__(self) -> None:
        self._parts: dict[RunId, list[ThreadIntervals]] = defaultdict(list)
        self._spans: dict[RunId, np.ndarray] = {}

    def add(self, activity: ActivityColumns) -> None:
        intervals = unordered(activity, named=False)
        if len(intervals):
            self._parts[RunId.from_batch(activity)].append(intervals)

    def attach(self, merged: MergedBatches, operator: Attach) -> Attached:
        """Returns the contexts of all samples. An operator of the user is called with one batch at a time."""
        if operator is not attach:
            return _one_by_one(merged, operator, [self._near(batch) for batch in merged.batches])
        runs: dict[RunId, int] = {}
        near: dict[int, tuple[int, ThreadIntervals]] = {}
        of_batch = []
        for batch in merged.batches:
            number = runs.setdefault(RunId.from_batch(batch), len(runs))
            of_batch.append(number)
            near |= {id(part): (number, part) for part in self._near(batch)}
        return _at_once(merged, of_batch, list(near.values()))

    def _near(self, batch: RawColumns) -> list[ThreadIntervals]:
        """Returns the parts that may have intervals in the window of a batch."""
        run_id = RunId.from_batch(batch)
        parts = self._parts.get(run_id, [])
        spans = self._spans.get(run_id)
        if spans is None or len(spans) != len(parts):  # from the first start to the last end of each part
            spans = np.array(
                [(part.start_monotonic_ns.min(), part.end_monotonic_ns.max()) for part in parts], np.int64
            ).reshape(-1, 2)
            self._spans[run_id] = spans
        rows = np.flatnonzero((spans[:, 0] < batch.end_monotonic_ns) & (spans[:, 1] > batch.start_monotonic_ns))
        return [parts[row] for row in rows.tolist()]


def _one_by_one(merged: MergedBatches, operator: Attach, near: Sequence[Sequence[ThreadIntervals]]) -> Attached:
    attached = []
    for batch, parts in zip(merged.batches, near, strict=True):
        within = [part.overlapping(batch.start_monotonic_ns, batch.end_monotonic_ns) for part in parts]
        attached.append(operator(batch, in_order(concatenate([join([]), *within]))))
    first = index_ranges.starts(np.array([len(one.contexts) for one in attached])).astype(np.uint32)
    context = [np.where(one.context > 0, one.context + by, 0) for one, by in zip(attached, first, strict=True)]
    return Attached(
        np.concatenate(context).astype(np.uint32),
        np.concatenate([one.contexts for one in attached]),
        sum(one.by_bpf for one in attached),
        sum(one.by_join for one in attached),
    )


def _at_once(
    merged: MergedBatches, run_of_batch: Sequence[int], near: Sequence[tuple[int, ThreadIntervals]]
) -> Attached:
    """Attaches the samples of all batches. `near`: intervals, and the number of their run.

    A thread is named by its run and its rank among all threads of the intervals.
    """
    raw = merged.columns
    if not near:
        return attach(raw, join([]))
    intervals = concatenate([part for _, part in near])
    threads, rank = np.unique(intervals.thread, return_inverse=True)
    run = np.repeat(np.array([number for number, _ in near]), [len(part) for _, part in near])
    intervals = replace(intervals, thread=(run * len(threads) + rank).astype(np.uint64))
    intervals = in_order(intervals, threads=(int(run.max()) + 1) * len(threads))
    found = sorted_keys.find(threads, thread_keys(raw.sample_pid, raw.sample_tid))
    thread = (merged.of_samples(run_of_batch) * len(threads) + found).astype(np.uint64)
    thread[found < 0] = _NOWHERE
    offsets = merged.of_samples([batch.clock_offset_ns for batch in merged.batches])
    return attach_threads(raw, thread, raw.time_unix_nano - offsets, intervals)
