"""The time range of a job, and minutes of hosts."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import NamedTuple

SLICE_NS = 600 * 10**9
"""Jobs recompute ten minutes at a time."""
MINUTE_S = 60
_MS_NS = 10**6


@dataclass(frozen=True)
class JobTimeRange:
    """A half-open time range: `start_unix_nano` is in it, `end_unix_nano` is not."""

    start_unix_nano: int
    end_unix_nano: int

    def whole_milliseconds(self) -> "JobTimeRange":
        """Returns the range with both ends rounded down to a millisecond, the precision of `samples`."""
        return JobTimeRange(self.start_unix_nano // _MS_NS * _MS_NS, self.end_unix_nano // _MS_NS * _MS_NS)

    def slices(self) -> Iterator["JobTimeRange"]:
        """Yields the range in slices that are cut at round ten minutes."""
        start = self.start_unix_nano
        while start < self.end_unix_nano:
            end = min((start // SLICE_NS + 1) * SLICE_NS, self.end_unix_nano)
            yield JobTimeRange(start, end)
            start = end

    def days(self) -> list[date]:
        """Returns the days (UTC) that the range touches."""
        first = datetime.fromtimestamp(self.start_unix_nano // 10**9, timezone.utc).date()
        last = datetime.fromtimestamp((self.end_unix_nano - 1) // 10**9, timezone.utc).date()
        return [first + timedelta(days=i) for i in range((last - first).days + 1)]

    @property
    def parameters(self) -> dict[str, int]:
        """The query parameters of `within`. The end is rounded up to a millisecond."""
        return {"start_unix_milli": self.start_unix_nano // _MS_NS, "end_unix_milli": -(-self.end_unix_nano // _MS_NS)}


class HostMinute(NamedTuple):
    """A minute of a host."""

    host_id: str
    start_unix_s: int


START_SQL = "fromUnixTimestamp64Milli({start_unix_milli:Int64})"
END_SQL = "fromUnixTimestamp64Milli({end_unix_milli:Int64})"


def within(column: str) -> str:
    """Returns the SQL condition that a DateTime64 column lies in a range; its arguments are
    `JobTimeRange.parameters`."""
    return f"({column} >= {START_SQL} AND {column} < {END_SQL})"
