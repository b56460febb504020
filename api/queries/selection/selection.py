"""What a query selects: samples of a profile type, with matching labels, in a time range."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.errors import bad_request
from api.queries.selection.conditions import Conditions, add_days, add_matchers, add_time, add_times
from api.queries.selection.sample_operations import add_operation_matchers
from api.queries.selection.sample_spans import REQUEST_LABELS, add_span_matchers, series_matchers
from api.queries.selection.selector import Matcher, format_selector
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.gauges import is_gauge
from icestream.times import DAY_NS


@dataclass(frozen=True)
class Selection:
    profile_type: str
    matchers: tuple[Matcher, ...]
    time_range: TimeRange

    @property
    def unit(self) -> str:
        """The unit of values."""
        return unit_of(self.profile_type)

    @property
    def is_gauge(self) -> bool:
        """Whether profiles are averaged over time (api/queries/stacks/gauges.py) instead of summed up."""
        return is_gauge(self.profile_type)

    def check_operations(self) -> None:
        """Raises ApiError if operations have no sums of these values."""
        if self.is_gauge:
            hint = "group by another label; a selector may have an operation"
            raise bad_request("bad_parameter", f"{self.profile_type} is not of requests, so operations have none", hint)

    def conditions(self, parameters: dict[str, Any] | None = None) -> Conditions:
        """Conditions on `samples` and `trace_samples`, bound among other `parameters` of the query."""
        conditions = self._without_time({} if parameters is None else parameters, [self.time_range])
        add_time(conditions, self.time_range)
        return conditions

    @property
    def by_service(self) -> bool:
        """Whether it selects by no label but the service."""
        return all(matcher.label == "service" for matcher in self.matchers)

    @property
    def by_request(self) -> bool:
        """Whether it selects by operation or span, which rollups do not have."""
        return any(matcher.label in REQUEST_LABELS for matcher in self.matchers)

    def alternatives(
        self, ranges: Sequence[TimeRange], parameters: dict[str, Any], whole_days: bool = True
    ) -> list[Conditions]:
        """Conditions on `samples`: each selected row in these time ranges (disjoint) fulfils exactly one of them.

        With `whole_days`, whole days get conditions that do not read `time`: that is most of the work of a long merge.
        """
        days: list[tuple[int, int]] = []
        edges: list[TimeRange] = []
        for each in ranges:
            start, end = each.start_unix_nano, each.end_unix_nano
            first_day, last_day = -(-start // DAY_NS), end // DAY_NS
            if first_day >= last_day or not whole_days:
                edges.append(each)
                continue
            days.append((first_day, last_day))
            for edge in (TimeRange(start, first_day * DAY_NS), TimeRange(last_day * DAY_NS, end)):
                edges += [edge] if edge.start_unix_nano < edge.end_unix_nano else []
        alternatives = []
        if days:
            alternatives.append(self._without_time(parameters, ranges))
            add_days(alternatives[-1], days)
        if edges:
            alternatives.append(self._without_time(parameters, ranges))
            add_times(alternatives[-1], edges)
        return alternatives

    def of_any_request(self, ranges: Sequence[TimeRange], parameters: dict[str, Any]) -> Conditions:
        """Conditions on `samples` in these time ranges, without those on the operation and the span: what these select
        is looked for among the requests of such samples."""
        conditions = self._of_series(parameters)
        add_times(conditions, ranges)
        return conditions

    def _of_series(self, parameters: dict[str, Any]) -> Conditions:
        conditions = Conditions(parameters=parameters)
        conditions.add(f"profile_type = {conditions.bind(self.profile_type, 'String')}")
        add_matchers(conditions, series_matchers(self.matchers))
        return conditions

    def _without_time(self, parameters: dict[str, Any], ranges: Sequence[TimeRange]) -> Conditions:
        """`ranges`: only samples in these times are selected."""
        conditions = self._of_series(parameters)
        add_operation_matchers(conditions, self.of_any_request(ranges, parameters), ranges, self.matchers)
        add_span_matchers(conditions, ranges, self.matchers)
        return conditions

    def as_json(self) -> dict[str, Any]:
        return {
            "profile_type": self.profile_type,
            "unit": self.unit,
            "aggregation": "average" if self.is_gauge else "sum",
            "selector": format_selector(self.matchers),
        } | self.time_range.as_json()


def unit_of(profile_type: str) -> str:
    """The sample unit of a profile type."""
    return profile_type.split(":")[2]
