"""What a query selects: samples of a profile type, with matching labels, in a time range."""

from dataclasses import dataclass
from typing import Any

from api.queries.conditions import Conditions, add_days, add_matchers, add_time
from api.queries.selector import Matcher, format_selector
from icestream.times import format_unix_nano

_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class TimeRange:
    """[start, end)."""

    start_unix_nano: int
    end_unix_nano: int

    def as_json(self, prefix: str = "") -> dict[str, str]:
        return {
            f"{prefix}start": format_unix_nano(self.start_unix_nano),
            f"{prefix}end": format_unix_nano(self.end_unix_nano),
        }


@dataclass(frozen=True)
class Selection:
    profile_type: str
    matchers: tuple[Matcher, ...]
    time_range: TimeRange

    @property
    def unit(self) -> str:
        """The unit of values."""
        return unit_of(self.profile_type)

    def conditions(self) -> Conditions:
        """Conditions on `samples` and `trace_samples`."""
        conditions = self._without_time({})
        add_time(conditions, self.time_range.start_unix_nano, self.time_range.end_unix_nano)
        return conditions

    def alternatives(self) -> list[Conditions]:
        """The same as conditions of which each selected row fulfils exactly one; they share their parameters.

        Whole days get conditions that do not read `time`, because reading it is most of the work of a long merge.
        """
        start, end = self.time_range.start_unix_nano, self.time_range.end_unix_nano
        first_day, last_day = -(-start // _DAY_NS), end // _DAY_NS
        if first_day >= last_day:
            return [self.conditions()]
        whole_days = self._without_time({})
        add_days(whole_days, first_day, last_day - first_day)
        alternatives = [whole_days]
        for edge_start, edge_end in ((start, first_day * _DAY_NS), (last_day * _DAY_NS, end)):
            if edge_start < edge_end:
                edge = self._without_time(whole_days.parameters)
                add_time(edge, edge_start, edge_end)
                alternatives.append(edge)
        return alternatives

    def _without_time(self, parameters: dict[str, Any]) -> Conditions:
        conditions = Conditions(parameters=parameters)
        conditions.add(f"profile_type = {conditions.bind(self.profile_type, 'String')}")
        add_matchers(conditions, self.matchers)
        return conditions

    def as_json(self) -> dict[str, Any]:
        return {
            "profile_type": self.profile_type,
            "unit": self.unit,
            "selector": format_selector(self.matchers),
        } | self.time_range.as_json()


def unit_of(profile_type: str) -> str:
    """The sample unit of a profile type."""
    return profile_type.split(":")[2]
