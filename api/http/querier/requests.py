"""What requests of the QuerierService have in common: profile types, selectors and times.

Pyroscope calls a service `service_name`. The parts of a profile type are labels there.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from api.http.connect import invalid
from api.http.parameters import parse_profile_type, parse_selector
from api.queries.selection.conditions import anchored
from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from api.views.frame_filter import FrameFilter
from api.views.patterns import check_pattern, check_size
from icestream.pyroscope.querier_pb2 import StackTraceSelector
from icestream.times import MAX_UNIX_NANO

SERVICE, SERVICE_NAME = "service", "service_name"
_PARTS = ("__name__", "__type__", "__unit__", "__period_type__", "__period_unit__")
PROFILE_TYPE_LABELS = ("__profile_type__", *_PARTS)
_MAX_SELECTORS = 20
_MAX_CONDITIONS = 100


@dataclass(frozen=True)
class Matchers:
    """A selector: what it says of profile types, and of labels as icestream has them."""

    of_profile_type: tuple[Matcher, ...]
    of_labels: tuple[Matcher, ...]

    def profile_types(self, known: Iterable[str]) -> list[str]:
        """Those that match."""
        return [each for each in known if all(_holds(matcher, each) for matcher in self.of_profile_type)]


def parse_matchers(text: str) -> Matchers:
    """Raises ApiError. Older versions of Grafana write the profile type before the braces."""
    before, brace, rest = text.partition("{")
    written = []
    if brace and before.strip():
        written = [Matcher("__profile_type__", "=", parse_profile_type(before.strip()))]
    elif not brace and text.strip():
        raise invalid(f'a selector starts with "{{": {text[:100]!r}')
    matchers = parse_selector(brace + rest)
    of_profile_type = [*written, *(each for each in matchers if each.label in PROFILE_TYPE_LABELS)]
    for matcher in of_profile_type:
        if matcher.operator in ("=~", "!~"):
            check_pattern(matcher.value, matcher.label)  # on its own: `a)|(b` would escape the brackets
            check_pattern(anchored(matcher.value), matcher.label)
    of_labels = (each for each in matchers if each.label not in PROFILE_TYPE_LABELS)
    return Matchers(tuple(of_profile_type), tuple(replace(each, label=our_label(each.label)) for each in of_labels))


def parse_selectors(texts: Iterable[str]) -> Iterator[Matchers]:
    """One for each selector; without any, one that matches everything. Raises ApiError."""
    selectors = [text for text in texts if text.strip()] or ["{}"]
    if len(selectors) > _MAX_SELECTORS:
        raise invalid(f"more than {_MAX_SELECTORS} matchers")
    return map(parse_matchers, selectors)


def parse_range(start_unix_milli: int, end_unix_milli: int) -> TimeRange:
    """Raises ConnectError."""
    start, end = start_unix_milli * 10**6, end_unix_milli * 10**6
    if not 0 <= start < end < MAX_UNIX_NANO:
        raise invalid(f"start ({start_unix_milli}) is not before end ({end_unix_milli}); both are Unix milliseconds")
    return TimeRange(start, end)


def parse_range_or_all(start_unix_milli: int, end_unix_milli: int) -> TimeRange | None:
    """None if neither is given. Raises ConnectError."""
    if not start_unix_milli and not end_unix_milli:
        return None
    return parse_range(start_unix_milli, end_unix_milli)


def parse_selection(profile_type: str, selector: str, time_range: TimeRange) -> Selection | None:
    """None if the selector excludes the profile type. Raises ApiError, ConnectError."""
    matchers = parse_matchers(selector)
    if not matchers.profile_types([parse_profile_type(profile_type)]):
        return None
    return Selection(profile_type, matchers.of_labels, time_range)


def parse_frame_filter(selector: StackTraceSelector) -> FrameFilter | None:
    """None if it filters nothing. Raises ApiError, ConnectError."""
    frame_filter = selector.frame_filter
    wanted = FrameFilter(
        tuple(dict.fromkeys(frame_filter.include_function_names)),
        tuple(dict.fromkeys(frame_filter.exclude_function_names)),
        tuple(dict.fromkeys(frame_filter.include_function_name_regexes)),
        tuple(dict.fromkeys(frame_filter.exclude_function_name_regexes)),
    )
    conditions = sum(map(len, (wanted.include_names, wanted.exclude_names, *wanted.patterns)))
    if conditions > _MAX_CONDITIONS:
        raise invalid(f"frame_filter: more than {_MAX_CONDITIONS} names and regular expressions")
    check_size(itertools.chain(*wanted.patterns), "frame_filter")
    for pattern in itertools.chain(*wanted.patterns):
        check_pattern(pattern, "frame_filter")
    return wanted if conditions else None


def our_label(name: str) -> str:
    """A label of Pyroscope as icestream calls it."""
    return SERVICE if name == SERVICE_NAME else name


def their_label(name: str) -> str:
    """A label of icestream as Pyroscope calls it."""
    return SERVICE_NAME if name == SERVICE else name


def labels_of_profile_type(profile_type: str) -> dict[str, str]:
    """The labels that say of which profile type a series is."""
    return {"__profile_type__": profile_type, **dict(zip(_PARTS, profile_type.split(":"), strict=False))}


def _holds(matcher: Matcher, profile_type: str) -> bool:
    value = labels_of_profile_type(profile_type).get(matcher.label, "")
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is (matcher.operator == "=")
    found = pc.match_substring_regex(pa.array([value]), anchored(matcher.value))[0].as_py()
    return bool(found) is (matcher.operator == "=~")
