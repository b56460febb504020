"""Buckets of rollups, and which of them are built together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from icestream.rollups import DAY_S, Level

_TOGETHER = 20_000_000
"""Samples of which hours are built together. Hours of more samples are built one by one."""
_REQUESTS_TOGETHER = 1_000_000
"""Likewise rows of samples, activity and requests: with the sketches of few hours, the memory of a build suffices."""


@dataclass(frozen=True)
class Bucket:
    """A bucket of a level."""

    level: Level
    start_unix_s: int


def together(buckets: Sequence[Bucket], rows: Mapping[int, int]) -> Iterator[list[Bucket]]:
    """Yields buckets of one level in groups, each of one day, that are built together; they keep their order.

    `rows`: how many each day has, by its start.
    """
    for day, of_day in groupby(buckets, key=lambda bucket: bucket.start_unix_s // DAY_S * DAY_S):
        hour = rows.get(day, 0) // 24
        left = list(of_day)
        most = _REQUESTS_TOGETHER if left[0].level.of_requests else _TOGETHER
        size = max(most // max(hour, 1), 1)
        yield from (left[first : first + size] for first in range(0, len(left), size))


def one_by_one(buckets: Sequence[Bucket], with_rows: Collection[int]) -> Iterator[list[Bucket]]:
    """Yields buckets of operations that are summed up from rows: those that have rows each alone, so that one that
    cannot be built leaves the others alone, and all others before them, together."""
    if without := [bucket for bucket in buckets if bucket.start_unix_s not in with_rows]:
        yield without
    yield from ([bucket] for bucket in buckets if bucket.start_unix_s in with_rows)
