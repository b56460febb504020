"""Corrects recent samples that were published without a context, when an interval comes that covers them."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from icestream.messages.activity import ActivityColumns
from streams.attach import Intervals, covering, thread_keys
from streams.retained import CollectorStart, Retained
from streams.sample_encoder import SampleRows


@dataclass(frozen=True)
class Claim:
    """n samples of one raw message, each covered by an interval."""

    series: list[bytes]  # serialized Series
    columns: dict[str, np.ndarray]  # of the samples (n,), named as in Recent
    interval: np.ndarray  # int64 (n,), the row of each sample's interval


def corrections(retained: Retained, activity: ActivityColumns, intervals: Intervals) -> list[SampleRows]:
    """Returns, for each profile type, rows that take values back from no context and rows that give them to a trace.

    `intervals`: those of `activity` that have a trace. The samples are forgotten, so that no value is given twice.
    """
    if not len(intervals):
        return []
    first, end = int(intervals.start_monotonic_ns.min()), int(intervals.end_monotonic_ns.max())
    claims: dict[str, list[Claim]] = defaultdict(list)
    for recent in retained.samples(CollectorStart.of(activity)):
        times = recent.time_unix_nano - recent.clock_offset_ns
        if int(times.max()) < first or int(times.min()) >= end:
            continue
        interval = covering(thread_keys(recent.pid, recent.tid), times, intervals)
        covered = interval >= 0
        if covered.any():
            claims[recent.profile_type].append(Claim(recent.series, recent.columns(covered), interval[covered]))
            retained.claim(recent, covered)
    return [_rows(profile_type, activity, intervals, claims[profile_type]) for profile_type in sorted(claims)]


def _rows(profile_type: str, activity: ActivityColumns, intervals: Intervals, claims: list[Claim]) -> SampleRows:
    row_of: dict[bytes, int] = {}
    sample_series = np.concatenate([_series_rows(claim, row_of) for claim in claims])
    columns = {name: np.concatenate([claim.columns[name] for claim in claims]) for name in claims[0].columns}
    used, context = np.unique(np.concatenate([claim.interval for claim in claims]), return_inverse=True)
    return SampleRows(
        host_id=activity.host_id,
        profile_type=profile_type,
        published_unix_nano=activity.published_unix_nano,
        series=list(row_of),
        contexts=intervals.contexts[used],
        time_unix_nano=np.tile(columns["time_unix_nano"], 2),
        sample_series=np.tile(sample_series, 2),
        pid=np.tile(columns["pid"], 2),
        tid=np.tile(columns["tid"], 2),
        stack_id=np.tile(columns["stack_id"], 2),
        context=np.concatenate([np.zeros(len(context), np.uint32), (context + 1).astype(np.uint32)]),
        count=np.concatenate([-columns["count"], columns["count"]]),
        value=np.concatenate([-columns["value"], columns["value"]]),
    )


def _series_rows(claim: Claim, row_of: dict[bytes, int]) -> np.ndarray:
    """Returns each sample's row in `row_of`, to which it adds the series of the claim."""
    rows = np.array([row_of.setdefault(series, len(row_of)) for series in claim.series], dtype=np.uint32)
    sample_rows: np.ndarray = rows[claim.columns["sample_series"]]
    return sample_rows
