"""Tells samples apart that look the same, but were taken before and after a change of their process."""

from collections.abc import Callable

import numpy as np


def group(
    same: np.ndarray, pid: np.ndarray, time_monotonic_ns: np.ndarray, changes: Callable[[int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Groups n samples by a number (`same`, int64 (n,), not negative) and by the changes of their process before them.

    `changes`: the times (uint64, ascending) at which a process changed. Returns the first sample of each group, in the
    order of `same` and of time (int64 (groups,)), and the group of each sample (int64 (n,)).
    """
    moment = np.zeros(len(pid), np.int64)
    for process in np.unique(pid).tolist():
        times = changes(process)
        if len(times):
            of_process = np.flatnonzero(pid == process)
            moment[of_process] = np.searchsorted(times, time_monotonic_ns[of_process], side="right")
    _, first, row = np.unique(same * (moment.max(initial=0) + 1) + moment, return_index=True, return_inverse=True)
    return first, row
