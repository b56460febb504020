"""Buckets of rollups, and which of them are built together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from icestream.rollups import DAY_S, OPERATION_MINUTES, Level

_TOGETHER = 20_000_000
"""Samples of which hours are built together. Hours of more samples are built one by one."""
_REQUESTS_TOGETHER = 1_000_000
"""Likewise rows of samples, activity and requests: with the sketches of few hours, the memory of a build suffices.
Hours that are summed up from rows are built one by one: the operation of a span must not depend on the other hours."""


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
        size = 1 if left[0].level == OPERATION_MINUTES else max(most // max(hour, 1), 1)
        yield from (left[first : first + size] for first in range(0, len(left), size))
