"""Buckets of rollups, and which of them are built together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from icestream.clickhouse.rollups import DAY_S, Level

_TOGETHER = 20_000_000
"""Hours are built together up to this many samples. An hour with more is built alone."""
_OPERATION_ROWS_TOGETHER = 1_000_000
"""The same for rows of samples, activity and requests: a build has memory for the sketches of few hours only."""


@dataclass(frozen=True)
class Bucket:
    """A bucket of a level."""

    level: Level
    start_unix_s: int


def grouped(buckets: Sequence[Bucket], rows: Mapping[int, int]) -> Iterator[list[Bucket]]:
    """Yields buckets of one level in groups, each of one day, that are built together; they keep their order.

    `rows`: how many each day has, by its start.
    """
    for day, of_day in groupby(buckets, key=lambda bucket: bucket.start_unix_s // DAY_S * DAY_S):
        hour = rows.get(day, 0) // 24
        left = list(of_day)
        most = _OPERATION_ROWS_TOGETHER if left[0].level.of_operations else _TOGETHER
        size = max(most // max(hour, 1), 1)
        yield from (left[first : first + size] for first in range(0, len(left), size))


def one_by_one(buckets: Sequence[Bucket], with_rows: Collection[int]) -> Iterator[list[Bucket]]:
    """Yields buckets of operations that are summed up from rows: first all that have no rows, together; then each that
    has rows, alone. So a bucket that cannot be built does not hold up the others."""
    if without := [bucket for bucket in buckets if bucket.start_unix_s not in with_rows]:
        yield without
    yield from ([bucket] for bucket in buckets if bucket.start_unix_s in with_rows)
