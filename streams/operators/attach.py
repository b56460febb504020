"""Gives samples their trace context: the one that the eBPF program read, else that of the interval that covers them.

Samples and intervals meet by process, thread and CLOCK_MONOTONIC. The caller gives only intervals of the samples' own
run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icestream.messages.activity import ActivityColumns
from icestream.messages.raw import RawColumns

_MAX = 2**63 - 1


@dataclass(frozen=True)
class ThreadIntervals:
    """n intervals of a host's threads, sorted by thread, then start. Each covers [start, end)."""

    thread: np.ndarray  # uint64 (n,), as thread_keys makes them
    start_monotonic_ns: np.ndarray  # int64 (n,)
    end_monotonic_ns: np.ndarray  # int64 (n,)
    contexts: np.ndarray  # uint8 (n, 24): trace ID, span ID
    operation: np.ndarray  # object (n,), str; "" where it is not known

    def __len__(self) -> int:
        return len(self.thread)

    def overlapping(self, start_monotonic_ns: int, end_monotonic_ns: int) -> "ThreadIntervals":
        """Returns the intervals that overlap [start, end)."""
        rows = (self.start_monotonic_ns < end_monotonic_ns) & (self.end_monotonic_ns > start_monotonic_ns)
        return self.select(np.flatnonzero(rows))

    def select(self, rows: np.ndarray) -> "ThreadIntervals":
        """Returns some intervals, in any order. `rows`: integers."""
        return ThreadIntervals(*(column.take(rows, axis=0) for column in vars(self).values()))


@dataclass(frozen=True)
class Attached:
    """The contexts of a batch's samples."""

    context: np.ndarray  # uint32 (samples,), 0: none, else row + 1 of contexts
    contexts: np.ndarray  # uint8 (c, 24)
    by_bpf: int
    by_join: int


def thread_keys(pid: np.ndarray, tid: np.ndarray) -> np.ndarray:
    """Returns one number for each process and thread, uint64. A thread ID is used again by other processes."""
    return (pid.astype(np.uint64) << np.uint64(32)) | tid.astype(np.uint64)


def traced(activity: ActivityColumns) -> ThreadIntervals:
    """Returns the intervals of a batch that have a trace."""
    return in_order(unordered(activity))


def unordered(activity: ActivityColumns, named: bool = True) -> ThreadIntervals:
    """As `traced`, but in the order of the batch. `named`: with their operations."""
    contexts = activity.contexts[activity.context]
    rows = np.flatnonzero(contexts[:, :16].any(axis=1))
    names = (
        np.array(activity.strings, object)[activity.operation] if named else np.full(len(activity.contexts), "", object)
    )
    return ThreadIntervals(
        thread_keys(activity.pid[rows], activity.tid[rows]),
        activity.start_unix_nano[rows] - activity.clock_offset_ns,
        activity.end_unix_nano[rows] - activity.clock_offset_ns,
        contexts[rows],
        names[activity.context[rows]],
    )


def join(parts: Sequence[ThreadIntervals]) -> ThreadIntervals:
    """Returns the intervals of all parts."""
    if not parts:
        none = np.empty(0, np.int64)
        return ThreadIntervals(none.astype(np.uint64), none, none, np.empty((0, 24), np.uint8), np.empty(0, object))
    if len(parts) == 1:
        return parts[0]
    return in_order(concatenate(parts))


def concatenate(parts: Sequence[ThreadIntervals]) -> ThreadIntervals:
    """Returns the intervals of at least one part, one part after the other."""
    return ThreadIntervals(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))


def attach(raw: RawColumns, intervals: ThreadIntervals) -> Attached:
    """Returns the contexts of a batch's samples, from the eBPF program and from intervals of the batch's collector."""
    return attach_threads(raw, thread_keys(raw.sample_pid, raw.sample_tid), raw.time_monotonic_ns, intervals)


def attach_threads(
    raw: RawColumns, thread: np.ndarray, time_monotonic_ns: np.ndarray, intervals: ThreadIntervals
) -> Attached:
    """As `attach`, for samples with these threads and times, named as those of the intervals."""
    by_bpf = int(np.count_nonzero(raw.sample_context))
    if not len(intervals):
        return Attached(raw.sample_context, raw.contexts, by_bpf, 0)
    context = raw.sample_context.copy()
    without = np.flatnonzero(context == 0)
    interval = covering(thread[without], time_monotonic_ns[without], intervals)
    covered = interval >= 0
    used, used_row = np.unique(interval[covered], return_inverse=True)
    context[without[covered]] = used_row + (1 + len(raw.contexts))
    return Attached(context, np.vstack([raw.contexts, intervals.contexts[used]]), by_bpf, int(covered.sum()))


def covering(thread: np.ndarray, time_monotonic_ns: np.ndarray, intervals: ThreadIntervals) -> np.ndarray:
    """Returns for each (thread, time) the row of the interval that covers it, int64; -1 where none does.

    Intervals of one thread should not overlap. Where they do, the one that started last is taken if it covers the time,
    else the one that ends last of those that started before the time.
    """
    rows = len(intervals)
    if not rows or not len(thread):
        return np.full(len(thread), -1, np.int64)
    # One integer for a thread and a time: the rank of the thread, then the time.
    is_first = np.r_[True, intervals.thread[1:] != intervals.thread[:-1]]
    threads = intervals.thread[is_first]
    rank = np.minimum(np.searchsorted(threads, thread), len(threads) - 1)
    on_thread = threads[rank] == thread
    interval_rank = np.cumsum(is_first) - 1
    start, time, limit = _small(intervals.start_monotonic_ns, time_monotonic_ns, _MAX // len(threads))
    started = interval_rank * limit + start
    last = np.searchsorted(started, rank.astype(np.int64) * limit + time, side="right") - 1
    on_thread &= last >= 0
    last = np.maximum(last, 0)
    on_thread &= intervals.thread[last] == thread
    covers = on_thread & (time_monotonic_ns < intervals.end_monotonic_ns[last])
    result = np.where(covers, last, -1)

    earlier = np.flatnonzero(on_thread & ~covers)
    encloses = ~is_first[1:] & (intervals.end_monotonic_ns[1:] < intervals.end_monotonic_ns[:-1])
    if len(earlier) and encloses.any():  # else the one that started last ends last
        # The latest end so far within a thread grows along the rows. The first row that reaches it ends last.
        ends = np.sort(intervals.end_monotonic_ns)
        end_rank = np.searchsorted(ends, intervals.end_monotonic_ns, side="left")
        latest_end = np.maximum.accumulate(interval_rank * (rows + 1) + end_rank)
        row = np.searchsorted(latest_end, latest_end[last[earlier]], side="left")
        result[earlier] = np.where(time_monotonic_ns[earlier] < intervals.end_monotonic_ns[row], row, -1)
    return result


def _small(starts: np.ndarray, times: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns starts and times as integers from 0 that compare as they do, and what is above all of these integers: the
    times since the first start, or, if that is not below `limit`, their ranks among the starts."""
    first, last = int(starts.min()), int(starts.max())
    if last - first + 2 < limit:
        return starts - (first - 1), np.clip(times, first - 1, last) - (first - 1), last - first + 2
    ascending = np.sort(starts)
    start_ranks, time_ranks = (np.searchsorted(ascending, values, side="right") for values in (starts, times))
    return start_ranks, time_ranks, len(starts) + 1


def in_order(intervals: ThreadIntervals, threads: int = 0) -> ThreadIntervals:
    """Returns intervals that are given in any order. `threads`: their threads are numbers below it; 0: any numbers.

    With numbers they are sorted by one integer each: parts that are in order are merged then, and not sorted.
    """
    if threads and len(intervals):
        start, _, limit = _small(intervals.start_monotonic_ns, np.empty(0, np.int64), _MAX // threads)
        order = np.argsort(intervals.thread.astype(np.int64) * limit + start, kind="stable")
    else:
        order = np.lexsort((intervals.start_monotonic_ns, intervals.thread))
    return intervals.select(order)
