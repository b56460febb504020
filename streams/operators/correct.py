"""Corrects retained samples that were published without a context, when an interval comes that covers them."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from icestream.messages.activity import ActivityColumns
from streams.operators.attach import ThreadIntervals, covering, thread_keys
from streams.operators.retained import Retained, RunId
from streams.operators.sample_encoder import SampleRows


@dataclass(frozen=True)
class CoveredSamples:
    """n samples of one raw message, each covered by an interval."""

    series: list[bytes]  # serialized Series
    columns: dict[str, np.ndarray]  # of the samples (n,), named as in RetainedSamples
    interval: np.ndarray  # int64 (n,), the row of each sample's interval


def corrections(retained: Retained, activity: ActivityColumns, intervals: ThreadIntervals) -> list[SampleRows]:
    """Returns, for each profile type, rows that take values back from no context and rows that give them to a trace.

    `intervals`: those of `activity` that have a trace. The samples are forgotten, so that no value is given twice.
    """
    if not len(intervals):
        return []
    first, end = int(intervals.start_monotonic_ns.min()), int(intervals.end_monotonic_ns.max())
    parts: dict[str, list[CoveredSamples]] = defaultdict(list)
    for samples in retained.samples(RunId.from_batch(activity)):
        times = samples.time_unix_nano - samples.clock_offset_ns
        if int(times.max()) < first or int(times.min()) >= end:
            continue
        interval = covering(thread_keys(samples.pid, samples.tid), times, intervals)
        covered = interval >= 0
        if covered.any():
            parts[samples.profile_type].append(
                CoveredSamples(samples.series, samples.columns(covered), interval[covered])
            )
            retained.forget_rows(samples, covered)
    return [_rows(profile_type, activity, intervals, parts[profile_type]) for profile_type in sorted(parts)]


def _rows(
    profile_type: str, activity: ActivityColumns, intervals: ThreadIntervals, parts: list[CoveredSamples]
) -> SampleRows:
    row_of: dict[bytes, int] = {}
    sample_series = np.concatenate([_series_rows(part, row_of) for part in parts])
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    used, context = np.unique(np.concatenate([part.interval for part in parts]), return_inverse=True)
    return SampleRows(
        host_id=activity.host_id,
        profile_type=profile_type,
        published_unix_nano=activity.published_unix_nano,
        series=list(row_of),
        contexts=intervals.contexts[used],
        operations=intervals.operation[used],
        time_unix_nano=np.tile(columns["time_unix_nano"], 2),
        sample_series=np.tile(sample_series, 2),
        pid=np.tile(columns["pid"], 2),
        tid=np.tile(columns["tid"], 2),
        stack_id=np.tile(columns["stack_id"], 2),
        context=np.concatenate([np.zeros(len(context), np.uint32), (context + 1).astype(np.uint32)]),
        count=np.concatenate([-columns["count"], columns["count"]]),
        value=np.concatenate([-columns["value"], columns["value"]]),
    )


def _series_rows(part: CoveredSamples, row_of: dict[bytes, int]) -> np.ndarray:
    """Returns each sample's row in `row_of`, to which it adds the series of the part."""
    rows = np.array([row_of.setdefault(series, len(row_of)) for series in part.series], dtype=np.uint32)
    sample_rows: np.ndarray = rows[part.columns["sample_series"]]
    return sample_rows
