"""Parameters that several routes have: profile type, selector, time range, trace ID."""

import re
import time
from typing import Annotated

from fastapi import Depends, Query

from api.errors import bad_request
from api.queries.selection.sample_spans import check_ids
from api.queries.selection.selection import Selection
from api.queries.selection.selector import MAX_LENGTH, Matcher, SelectorError, parse
from api.queries.selection.time_range import TimeRange
from icestream.times import TimeError, format_unix_nano, parse_unix_nano
from icestream.topics import DEFAULT_PROFILE_TYPE

_DEFAULT_START = "now-15m"
_DEFAULT_END = "now"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_NO_TRACE = "0" * 32

ProfileTypeParam = Annotated[
    str,
    Query(
        max_length=300,
        description="name:sample type:sample unit:period type:period unit; /api/v1/profile-types lists the known ones.",
        examples=[DEFAULT_PROFILE_TYPE],
    ),
]
SelectorParam = Annotated[
    str,
    Query(
        max_length=MAX_LENGTH,
        description="Labels as in PromQL, with =, !=, =~ and !~ (RE2, anchored); {} selects everything. operation, "
        "span_name and span_id (16 hex digits) are those of a sample's request.",
        examples=['{service="checkout", version=~"1\\\\.4.*"}'],
    ),
]
StartParam = Annotated[
    str | None,
    Query(max_length=64, description="RFC 3339, Unix seconds, now, or now-15m (the default).", examples=["now-1h"]),
]
EndParam = Annotated[
    str | None, Query(max_length=64, description="As start; default: now. The end is exclusive.", examples=["now"])
]


def asked_at() -> int:
    """For the routes, as a dependency: one `now` for all times of a request, in Unix nanoseconds."""
    return time.time_ns()


NowParam = Annotated[int, Depends(asked_at)]


def selection(
    now: NowParam,
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    selector: SelectorParam = "{}",
    start: StartParam = None,
    end: EndParam = None,
) -> Selection:
    """For routes, as a dependency. Raises ApiError."""
    return Selection(parse_profile_type(profile_type), parse_selector(selector), parse_time_range(start, end, now=now))


def parse_profile_type(text: str) -> str:
    """Raises ApiError."""
    parts = text.split(":")
    if len(parts) not in (5, 6) or not all(parts):
        raise bad_request(
            "bad_profile_type",
            f"not a profile type: {text[:100]!r}",
            f"name:sample type:sample unit:period type:period unit, as in {DEFAULT_PROFILE_TYPE}",
        )
    return text


def parse_selector(text: str, name: str = "selector") -> tuple[Matcher, ...]:
    """The matchers of the parameter `name`. Raises ApiError."""
    try:
        matchers = parse(text)
        check_ids(matchers)
    except SelectorError as error:
        hint = error.hint or 'for example {service="checkout", version=~"1\\\\.4.*"}'
        raise bad_request("bad_selector", f"{name}: {error}", hint) from None
    return matchers


def parse_time_range(
    start: str | None, end: str | None, default: TimeRange | None = None, prefix: str = "", now: int | None = None
) -> TimeRange:
    """The time range of the parameters `prefix`start and `prefix`end. Raises ApiError.

    A missing end comes from `default`, or else from the last 15 minutes.
    """
    now = time.time_ns() if now is None else now
    if default is None:
        default = TimeRange(parse_unix_nano(_DEFAULT_START, now), parse_unix_nano(_DEFAULT_END, now))
    start_unix_nano = parse_time(start, f"{prefix}start", now) if start else default.start_unix_nano
    end_unix_nano = parse_time(end, f"{prefix}end", now) if end else default.end_unix_nano
    if start_unix_nano >= end_unix_nano:
        raise bad_request(
            "bad_time",
            f"{prefix}start ({format_unix_nano(start_unix_nano)}) is not before"
            f" {prefix}end ({format_unix_nano(end_unix_nano)})",
            f"give a {prefix}start before {prefix}end",
        )
    return TimeRange(start_unix_nano, end_unix_nano)


def parse_time(text: str, name: str, now_unix_nano: int) -> int:
    """The time of the parameter `name`, in nanoseconds since 1970. Raises ApiError."""
    try:
        return parse_unix_nano(text, now_unix_nano)
    except (TimeError, OverflowError, ValueError) as error:
        hint = "for example now-15m, or 2026-01-31T12:00:00Z"
        raise bad_request("bad_time", f"{name}: {error}", hint) from None


def parse_trace_id(text: str) -> str:
    """Returns 32 lower-case hex digits. Raises ApiError."""
    trace_id = text.strip().lower().replace("-", "")
    if not _TRACE_ID.fullmatch(trace_id) or trace_id == _NO_TRACE:
        raise bad_request(
            "bad_trace_id", f"not a trace ID: {text[:60]!r}", "32 hex digits, as in 4bf92f3577b34da6a3ce929d0e0e4736"
        )
    return trace_id
