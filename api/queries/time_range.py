"""The time range of a query."""

import time
from dataclasses import dataclass

from api.errors import bad_request
from icestream.times import TimeError, format_unix_nano, parse_unix_nano

DEFAULT_START = "now-15m"
DEFAULT_END = "now"


@dataclass(frozen=True)
class TimeRange:
    """Unix nanoseconds, [start, end)."""

    start_unix_nano: int
    end_unix_nano: int

    def as_json(self, prefix: str = "") -> dict[str, str]:
        return {
            f"{prefix}start": format_unix_nano(self.start_unix_nano),
            f"{prefix}end": format_unix_nano(self.end_unix_nano),
        }


def parse_range(start: str | None, end: str | None, default: TimeRange | None = None, prefix: str = "") -> TimeRange:
    """Reads both ends; those of `default`, or the last 15 minutes, where they are not given. Raises ApiError."""
    now = time.time_ns()
    names = (f"{prefix}start", f"{prefix}end")
    nanos = []
    for i, text in enumerate((start, end)):
        if not text and default is not None:
            nanos.append((default.start_unix_nano, default.end_unix_nano)[i])
            continue
        try:
            nanos.append(parse_unix_nano(text or (DEFAULT_START, DEFAULT_END)[i], now))
        except (TimeError, OverflowError, ValueError) as error:
            hint = "for example now-15m, or 2026-01-31T12:00:00Z"
            raise bad_request("bad_time", f"{names[i]}: {error}", hint) from None
    if nanos[0] >= nanos[1]:
        raise bad_request(
            "bad_time",
            f"{names[0]} ({format_unix_nano(nanos[0])}) is not before {names[1]} ({format_unix_nano(nanos[1])})",
            f"give a {names[0]} before {names[1]}",
        )
    return TimeRange(*nanos)
