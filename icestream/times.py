"""Times as users write them: RFC 3339, Unix seconds, `now`, `now-15m`."""

import re
import time
from datetime import datetime, timedelta, timezone

_RELATIVE = re.compile(r"now(?:([+-])([0-9]{1,18})(ms|s|m|h|d|w))?")
_UNIX = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
_UNIT_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": HOUR_NS, "d": DAY_NS, "w": 7 * DAY_NS}
MAX_UNIX_NANO = 4_102_444_800 * 10**9
"""Times are before the year 2100, so that every type that holds a time on its way can, and sums do not overflow."""


class TimeError(ValueError):
    """A time cannot be read, or is out of range; the message says which and what is expected."""


def parse_unix_nano(text: str, now_unix_nano: int | None = None) -> int:
    """Nanoseconds since 1970. Raises TimeError, also for times before 1970 or past the year 2099."""
    text = text.strip()
    nanos = _parse(text, time.time_ns() if now_unix_nano is None else now_unix_nano)
    if not 0 <= nanos < MAX_UNIX_NANO:
        raise TimeError(f"expected a time from 1970 to 2099, got {text[:60]!r}")
    return nanos


def format_unix_nano(nanos: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(nanos // 10**9, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanos // 10**6 % 1000:03d}Z"


def _parse(text: str, now: int) -> int:
    if match := _RELATIVE.fullmatch(text):
        sign, amount, unit = match.groups()
        return now if unit is None else now + int(sign + amount) * _UNIT_NS[unit]
    if match := _UNIX.fullmatch(text):
        return int(match[1]) * 10**9 + int((match[2] or "").ljust(9, "0"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(
            f"expected a time (RFC 3339 as 2026-01-31T12:00:00Z, Unix seconds, now, or now-15m), got {text[:60]!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
