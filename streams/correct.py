"""Late activity: recent samples that an interval claims after they were published without a context."""

from collections import defaultdict

import numpy as np

from streams import attach
from streams.columns import ActivityColumns
from streams.encode import SampleRows
from streams.state import Partition, Recent


def corrections(state: Partition, activity: ActivityColumns) -> list[SampleRows]:
    """For each profile type, rows that take values back from no context, and rows that give them to the activity's.

    The samples are forgotten, so that no value is given twice.
    """
    if not len(activity.tid):
        return []
    known = attach.intervals([(activity.tid, activity.start_unix_nano, activity.end_unix_nano, activity.contexts)])
    first, end = int(known.start_unix_nano.min()), int(known.end_unix_nano.max())
    claims: dict[str, list[tuple[Recent, dict[str, np.ndarray], np.ndarray]]] = defaultdict(list)
    for recent in state.host(activity.host_id).recent:
        if not len(recent) or int(recent.time_unix_nano.max()) < first or int(recent.time_unix_nano.min()) >= end:
            continue
        found = attach.covering(recent.tid, recent.time_unix_nano, known)
        hit = found >= 0
        if hit.any():
            claims[recent.profile_type].append((recent, recent.columns(hit), found[hit]))
            state.claim(recent, hit)
    return [_rows(profile_type, activity, known, claimed) for profile_type, claimed in sorted(claims.items())]


def _rows(
    profile_type: str,
    activity: ActivityColumns,
    known: attach.Intervals,
    claimed: list[tuple[Recent, dict[str, np.ndarray], np.ndarray]],
) -> SampleRows:
    series: dict[bytes, int] = {}
    places = []
    for recent, columns, _ in claimed:
        place = np.array([series.setdefault(blob, len(series)) for blob in recent.series], dtype=np.uint32)
        places.append(place[columns["sample_series"]])
    sample_series = np.concatenate(places)
    joined = {name: np.concatenate([columns[name] for _, columns, _ in claimed]) for name in claimed[0][1]}
    used, context = np.unique(np.concatenate([found for _, _, found in claimed]), return_inverse=True)
    return SampleRows(
        host_id=activity.host_id,
        profile_type=profile_type,
        published_unix_nano=activity.published_unix_nano,
        series=list(series),
        contexts=known.contexts[used],
        time_unix_nano=np.tile(joined["time_unix_nano"], 2),
        sample_series=np.tile(sample_series, 2),
        pid=np.tile(joined["pid"], 2),
        tid=np.tile(joined["tid"], 2),
        stack_id=np.tile(joined["stack_id"], 2),
        context=np.concatenate([np.zeros(len(context), np.uint32), (context + 1).astype(np.uint32)]),
        count=np.concatenate([-joined["count"], joined["count"]]),
        value=np.concatenate([-joined["value"], joined["value"]]),
    )
