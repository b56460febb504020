"""Which labels there are, and which values they have."""

from dataclasses import dataclass
from itertools import chain

from api.queries.database import Database, texts
from api.queries.labels.known_series import KnownSeries
from api.queries.operations.any_operations import any_operations
from api.queries.operations.operation_names import read_operation_names, whole_hours
from api.queries.selection.conditions import (
    Conditions,
    add_hours,
    add_matchers,
    add_series_matchers,
    add_span_times,
    add_value_matcher,
)
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.sample_spans import series_matchers, split_span_matchers
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.span_operations import SPAN_NAME


@dataclass(frozen=True)
class SelectedSeries:
    """Matching series: all that were ever seen, or those with samples in the hours of a time range."""

    matchers: tuple[Matcher, ...]
    time_range: TimeRange | None

    def conditions(self) -> Conditions:
        """Conditions on `series`."""
        conditions = Conditions()
        add_series_matchers(conditions, series_matchers(self.matchers))
        if self.time_range is not None:
            seen = Conditions(parameters=conditions.parameters)
            add_hours(seen, self.time_range)
            conditions.add(f"series_id IN (SELECT series_id FROM series_seen {seen.where})")
        return conditions

    def span_conditions(self) -> Conditions:
        """Conditions on `spans`, whose rows have a service and no other label."""
        conditions = Conditions()
        add_matchers(conditions, [matcher for matcher in self.matchers if matcher.label == "service"])
        for matcher in split_span_matchers(self.matchers)[0]:
            add_value_matcher(conditions, "name", matcher)
        if self.time_range is not None:
            add_span_times(conditions, [self.time_range])
            start = conditions.bind(self.time_range.start_unix_nano // 10**6, "Int64")
            conditions.add(f"end_time >= fromUnixTimestamp64Milli({start}, 'UTC')")
        return conditions


def read_label_names(known: KnownSeries, selected: SelectedSeries, limit: int) -> list[str]:
    """Names of labels of series, in order; `operation` and `span_name` if there are such. Raises ApiError."""
    database = known.database
    seen = known.seen(None, selected.matchers, selected.time_range)
    names = set(_read_names(database, selected, limit) if seen is None else chain(*(each.labels for each in seen)))
    if selected.time_range is None or any_operations(database, [whole_hours(selected.time_range)]):
        if read_operation_names(database, selected.matchers, selected.time_range, "", 1):
            names.add(OPERATION)
        of_spans = selected.span_conditions()
        of_spans.add("name != ''")
        if len(database.table(f"SELECT 1 FROM spans {of_spans.where} LIMIT 1", of_spans.parameters)):
            names.add(SPAN_NAME)
    return sorted(names)[:limit]


def _read_names(database: Database, selected: SelectedSeries, limit: int) -> list[str]:
    conditions = selected.conditions()
    answer = database.table(
        "SELECT DISTINCT toString(arrayJoin(mapKeys(mapFilter((name, value) -> value != '', labels)))) AS name"
        f" FROM series {conditions.where} ORDER BY name LIMIT {int(limit)}",
        conditions.parameters,
    )
    return texts(answer["name"])


def read_label_values(known: KnownSeries, name: str, selected: SelectedSeries, contains: str, limit: int) -> list[str]:
    """Values of a label, in order, without the empty one. Raises ApiError."""
    database = known.database
    if name == OPERATION:
        return read_operation_names(database, selected.matchers, selected.time_range, contains, limit)
    of_spans = []
    if name == SPAN_NAME:
        of_spans = _read_values(database, "name", "spans", selected.span_conditions(), contains, limit)
    seen = None if contains else known.seen(None, selected.matchers, selected.time_range)
    if seen is None:
        conditions = selected.conditions()
        value = f"labels[{conditions.bind(name, 'String')}]"
        of_series = _read_values(database, value, "series", conditions, contains, limit)
    else:
        of_series = [each.labels[name] for each in seen if name in each.labels]
    return sorted({*of_spans, *of_series})[:limit]


def _read_values(
    database: Database, column: str, table: str, conditions: Conditions, contains: str, limit: int
) -> list[str]:
    value = f"toString({column})"
    conditions.add(f"{value} != ''")
    if contains:
        conditions.add(f"positionCaseInsensitiveUTF8({value}, {conditions.bind(contains, 'String')}) > 0")
    answer = database.table(
        f"SELECT DISTINCT {value} AS value FROM {table} {conditions.where} ORDER BY value LIMIT {int(limit)}",
        conditions.parameters,
    )
    return texts(answer["value"])
