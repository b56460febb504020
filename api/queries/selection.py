"""What a query is about: a profile type, a selector, a time range; and the parameters of routes that say so."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from api.errors import bad_request
from api.queries.conditions import Where, add_days, add_matchers, add_time
from api.queries.selector import MAX_LENGTH, Matcher, SelectorError, format_selector, parse
from api.queries.time_range import TimeRange, parse_range
from icestream.topics import DEFAULT_PROFILE_TYPE

ProfileTypeParam = Annotated[
    str,
    Query(
        max_length=300,
        description="name:sample type:sample unit:period type:period unit; /api/v1/profile-types lists what is there.",
        examples=[DEFAULT_PROFILE_TYPE],
    ),
]
SelectorParam = Annotated[
    str,
    Query(
        max_length=MAX_LENGTH,
        description="Labels as in PromQL, with =, !=, =~ and !~ (RE2, anchored); {} is everything.",
        examples=['{service="checkout", version=~"1\\\\.4.*"}'],
    ),
]
StartParam = Annotated[
    str | None,
    Query(max_length=64, description="RFC 3339, Unix seconds, now, or now-15m (the default).", examples=["now-1h"]),
]
EndParam = Annotated[
    str | None, Query(max_length=64, description="As start; default now. The end itself is not in.", examples=["now"])
]


_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Scope:
    profile_type: str
    matchers: tuple[Matcher, ...]
    time: TimeRange

    @property
    def unit(self) -> str:
        """What values are in: the sample unit."""
        return self.profile_type.split(":")[2]

    def where(self) -> Where:
        """Conditions on `samples` and its like."""
        where = self._where({})
        add_time(where, self.time.start_unix_nano, self.time.end_unix_nano)
        return where

    def branches(self) -> list[Where]:
        """The same as conditions with parameters in common, of which a row fulfils one.

        Whole days need no look at `time`, which is most of the work of a long merge.
        """
        start, end = self.time.start_unix_nano, self.time.end_unix_nano
        first_day, last_day = -(-start // _DAY_NS), end // _DAY_NS
        if first_day >= last_day:
            return [self.where()]
        days = self._where({})
        add_days(days, first_day, last_day - first_day)
        branches = [days]
        for edge in ((start, first_day * _DAY_NS), (last_day * _DAY_NS, end)):
            if edge[0] < edge[1]:
                where = self._where(days.parameters)
                add_time(where, *edge)
                branches.append(where)
        return branches

    def _where(self, parameters: dict[str, Any]) -> Where:
        where = Where(parameters=parameters)
        where.add(f"profile_type = {where.bind(self.profile_type, 'String')}")
        add_matchers(where, self.matchers)
        return where

    def as_json(self) -> dict[str, Any]:
        return {
            "profile_type": self.profile_type,
            "unit": self.unit,
            "selector": format_selector(self.matchers),
        } | self.time.as_json()


def scope(
    profile_type: ProfileTypeParam = DEFAULT_PROFILE_TYPE,
    selector: SelectorParam = "{}",
    start: StartParam = None,
    end: EndParam = None,
) -> Scope:
    """The common parameters. Raises ApiError."""
    return Scope(parse_profile_type(profile_type), parse_selector(selector), parse_range(start, end))


def parse_profile_type(text: str) -> str:
    parts = text.split(":")
    if len(parts) not in (5, 6) or not all(parts):
        raise bad_request(
            "bad_profile_type",
            f"not a profile type: {text[:100]!r}",
            f"name:sample type:sample unit:period type:period unit, as in {DEFAULT_PROFILE_TYPE}",
        )
    return text


def parse_selector(text: str, name: str = "selector") -> tuple[Matcher, ...]:
    try:
        return parse(text)
    except SelectorError as error:
        raise bad_request(
            "bad_selector", f"{name}: {error}", 'for example {service="checkout", version=~"1\\\\.4.*"}'
        ) from None
