"""Gives samples their trace: what bpf read from the thread, else the interval that covers the sample."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streams.columns import RawColumns


@dataclass(frozen=True)
class Intervals:
    """n intervals of a host's threads, sorted by thread, then start; each covers [start_unix_nano, end_unix_nano)."""

    tid: np.ndarray  # uint32 (n,)
    start_unix_nano: np.ndarray  # int64 (n,)
    end_unix_nano: np.ndarray  # int64 (n,)
    contexts: np.ndarray  # uint8 (n, 24): trace ID, span ID

    def __len__(self) -> int:
        return len(self.tid)


@dataclass(frozen=True)
class Attached:
    """Contexts of a batch's samples."""

    context: np.ndarray  # uint32 (samples,), 0: none, else row + 1 of contexts
    contexts: np.ndarray  # uint8 (c, 24)
    by_bpf: int
    by_join: int


def intervals(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> Intervals:
    """From unsorted columns (tid, start_unix_nano, end_unix_nano, contexts)."""
    if not parts:
        none = np.empty(0, np.int64)
        return Intervals(none.astype(np.uint32), none, none, np.empty((0, 24), np.uint8))
    tid, start, end, contexts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((start, tid))
    return Intervals(tid[order], start[order], end[order], contexts[order])


def attach(raw: RawColumns, known: Intervals) -> Attached:
    """Contexts of a batch's samples, from bpf and from the given intervals of its host."""
    by_bpf = int(np.count_nonzero(raw.sample_context))
    if not len(known):
        return Attached(raw.sample_context, raw.contexts, by_bpf, 0)
    context = raw.sample_context.copy()
    open_rows = np.flatnonzero(context == 0)
    found = covering(raw.sample_tid[open_rows], raw.time_unix_nano[open_rows], known)
    hit = found >= 0
    used, place = np.unique(found[hit], return_inverse=True)
    context[open_rows[hit]] = place + (1 + len(raw.contexts))
    return Attached(context, np.vstack([raw.contexts, known.contexts[used]]), by_bpf, int(hit.sum()))


def covering(tid: np.ndarray, time_unix_nano: np.ndarray, known: Intervals) -> np.ndarray:
    """For each (thread, time) the row of an interval that covers it, int64; -1 where none does.

    Intervals of one thread should not overlap. Where they do: the last that started, if it covers the time, else the
    one that ends last of those that started before.
    """
    rows = len(known)
    if not rows or not len(tid):
        return np.full(len(tid), -1, np.int64)
    # A thread and a time as one integer: rank of the thread, then rank of the time among all starts (or ends).
    threads = known.tid[np.flatnonzero(np.r_[True, known.tid[1:] != known.tid[:-1]])]
    starts, ends = np.sort(known.start_unix_nano), np.sort(known.end_unix_nano)
    known_rank = np.searchsorted(threads, known.tid).astype(np.int64) * (rows + 1)
    rank = np.minimum(np.searchsorted(threads, tid), len(threads) - 1)
    on_thread = threads[rank] == tid
    rank = rank.astype(np.int64) * (rows + 1)

    started = known_rank + np.searchsorted(starts, known.start_unix_nano, side="right")
    last = np.searchsorted(started, rank + np.searchsorted(starts, time_unix_nano, side="right"), side="right") - 1
    on_thread &= last >= 0
    last = np.maximum(last, 0)
    on_thread &= known.tid[last] == tid
    covers = on_thread & (time_unix_nano < known.end_unix_nano[last])
    result = np.where(covers, last, -1)

    # The latest end so far within the thread grows along the rows: the first row that reaches it is the one.
    latest_end = np.maximum.accumulate(known_rank + np.searchsorted(ends, known.end_unix_nano, side="left"))
    earlier = np.flatnonzero(on_thread & ~covers)
    if len(earlier):
        row = np.searchsorted(latest_end, latest_end[last[earlier]], side="left")
        result[earlier] = np.where(time_unix_nano[earlier] < known.end_unix_nano[row], row, -1)
    return result
