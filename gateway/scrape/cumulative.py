"""How much a cumulative profile grew since it was scraped last: it counts from the start of its program on."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import xxhash

from gateway.sent_profile import SentProfile, Values
from icestream.columns import sorted_keys
from icestream.messages.plausible import MAX_SPREAD_NS
from icestream.messages.raw_encoder import Stacks, Window
from icestream.times import HOUR_NS

CUMULATIVE = ("alloc_objects", "alloc_space", "contentions", "delay")
"""Sample types that Go counts since the program's start. The others in such profiles say what there is now."""

_LONGEST_NS = MAX_SPREAD_NS - HOUR_NS
"""The longest time of a message. If a target was away for longer, what came meanwhile counts in the last part of it."""


@dataclass(frozen=True)
class Totals:
    """What a profile had at one moment: n different samples, k cumulative profile types."""

    unix_nano: int
    profile_types: tuple[str, ...]  # (k,)
    key: np.ndarray  # uint64 (n,), ascending
    total: np.ndarray  # int64 (n, k)


class Restarted(Exception):
    """The profile has less than before, or other types: it is another program's."""


def is_cumulative(values: Values) -> bool:
    return values.profile_type.split(":")[1] in CUMULATIVE


def totals(profile: SentProfile) -> Totals | None:
    """Returns the totals of the cumulative profile types; None where there are none."""
    found = {values.profile_type: values.value for values in profile.values if is_cumulative(values)}
    if not found:
        return None
    key, row = np.unique(_keys(profile.window), return_inverse=True)
    total = np.zeros((len(key), len(found)), np.int64)
    np.add.at(total, row, np.stack(list(found.values()), axis=1))
    return Totals(profile.window.start_unix_nano, tuple(found), key, total)


def split(profile: SentProfile, before: Totals | None, now: Totals | None) -> Iterator[SentProfile]:
    """Yields what there is now, and what came since `before`, unless that is None. Raises Restarted."""
    lasting = [values for values in profile.values if not is_cumulative(values)]
    if lasting:
        yield dataclasses.replace(profile, values=lasting)
    if before is None or now is None:
        return
    added = _added(before, now)
    _, first, row = np.unique(_keys(profile.window), return_index=True, return_inverse=True)
    cumulative = [values for values in profile.values if is_cumulative(values)]
    changed = []
    for column, values in enumerate(cumulative):
        value = np.zeros(len(row), np.int64)
        value[first] = added[:, column]  # samples that cannot be told apart are counted in the first of them
        changed.append(dataclasses.replace(values, value=value, count=None))
    start = max(before.unix_nano, now.unix_nano - _LONGEST_NS)
    window = dataclasses.replace(
        profile.window,
        start_unix_nano=start,
        end_unix_nano=max(now.unix_nano, start + 1),
        time_unix_nano=np.full(len(row), start, np.int64),
    )
    yield dataclasses.replace(profile, window=window, values=changed)


def _added(before: Totals, now: Totals) -> np.ndarray:
    if before.profile_types != now.profile_types:
        raise Restarted
    row = sorted_keys.find(before.key, now.key)
    known = row >= 0
    added = now.total.copy()
    added[known] -= before.total[row[known]]
    if known.sum() < len(before.key) or (len(added) and added.min() < 0):
        raise Restarted
    return added


def _keys(window: Window) -> np.ndarray:
    """Returns what tells samples apart whatever their place in a profile is: uint64, one for each sample."""
    stacks = window.stacks
    frames = [
        repr((stacks.mappings[mapping], address, stacks.names[name], lines)).encode()
        for mapping, address, name, lines in zip(
            stacks.mapping.tolist(), stacks.address.tolist(), stacks.name.tolist(), _lines(stacks), strict=True
        )
    ]
    digests = np.array([xxhash.xxh3_64_intdigest(frame) for frame in frames], np.uint64)
    ends = np.cumsum(stacks.depth)
    of_stack = [
        xxhash.xxh3_64_intdigest(digests[stacks.frames[end - depth : end]].tobytes())
        for end, depth in zip(ends.tolist(), stacks.depth.tolist(), strict=True)
    ]
    of_labels = [xxhash.xxh3_64_intdigest(repr(labels).encode()) for labels in window.labels]
    parts = np.stack(
        [
            np.array(of_stack, np.uint64)[window.stack],
            np.array(of_labels, np.uint64)[window.series],
            window.pid.astype(np.uint64) << np.uint64(32) | window.tid.astype(np.uint64),
        ],
        axis=1,
    )
    return np.array([xxhash.xxh3_64_intdigest(row.tobytes()) for row in parts], np.uint64)


def _lines(stacks: Stacks) -> list[list[tuple[str, str, int, int]]]:
    """Returns the lines of each location."""
    lines = stacks.lines
    if lines is None:
        return [[] for _ in stacks.mapping]
    rows = zip(
        [lines.texts[row] for row in lines.function.tolist()],
        [lines.texts[row] for row in lines.file.tolist()],
        lines.number.tolist(),
        lines.start_line.tolist(),
        strict=True,
    )
    return [list(islice(rows, count)) for count in lines.count.tolist()]
