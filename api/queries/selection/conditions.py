"""Conditions of a WHERE clause. Text of a caller becomes the value of a parameter, never SQL text."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.rollups import HOUR_S
from icestream.times import DAY_NS, HOUR_NS

_COLUMN_OF_LABEL = {"service": "service"}
"""Labels that are columns of the sample tables as well, so that the tables' primary key prunes by them."""
_DAY_0 = date(1970, 1, 1).toordinal()


@dataclass
class Conditions:
    """SQL expressions that all must hold, and the parameters that they name (`{p0:String}`)."""

    expressions: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def bind(self, value: Any, type_name: str) -> str:
        """Returns a placeholder for `value`, of the ClickHouse type `type_name`."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{type_name}}}"

    def bind_trace_id(self, trace_id: str) -> str:
        """Returns an expression to compare `trace_id` with, of 32 hex digits."""
        return f"toFixedString(unhex({self.bind(trace_id, 'String')}), 16)"

    def bind_trace_ids(self, trace_ids: list[str]) -> str:
        """Returns an expression for `trace_id IN`."""
        return self._bind_ids(trace_ids, 16)

    def bind_span_ids(self, span_ids: list[str]) -> str:
        """Returns an expression for `span_id IN`, of IDs with 16 hex digits."""
        return self._bind_ids(span_ids, 8)

    def _bind_ids(self, ids: list[str], size: int) -> str:
        # In an array, ClickHouse searches all rows, and for each of them all of the array.
        return f"(SELECT toFixedString(unhex(arrayJoin({self.bind(ids, 'Array(String)')})), {size}))"

    def add(self, expression: str) -> None:
        self.expressions.append(expression)

    def add_any(self, expressions: list[str]) -> None:
        """Adds that one of these holds."""
        self.add(f"({' OR '.join(expressions)})")

    @property
    def where(self) -> str:
        """`WHERE ...`, or an empty string if there are no conditions."""
        return f"WHERE {' AND '.join(self.expressions)}" if self.expressions else ""


def add_time(conditions: Conditions, time_range: TimeRange, column: str = "time") -> None:
    """Adds that `column` is in a time range, to the millisecond."""
    add_times(conditions, [time_range], column)


def add_times(conditions: Conditions, ranges: Iterable[TimeRange], column: str = "time") -> None:
    """Adds that `column` is in one of these time ranges, to the millisecond."""

    def bound(unix_nano: int) -> str:
        return f"fromUnixTimestamp64Milli({conditions.bind(unix_nano // 10**6, 'Int64')}, 'UTC')"

    conditions.add_any(
        [f"{column} >= {bound(each.start_unix_nano)} AND {column} < {bound(each.end_unix_nano)}" for each in ranges]
    )


def add_hours(conditions: Conditions, time_range: TimeRange) -> None:
    """Adds that `start_time`, the start of an hour, is that of one with a part of a time range.

    For columns of type DateTime: comparing one with milliseconds takes longer than reading it.
    """
    first, end = time_range.start_unix_nano // HOUR_NS * HOUR_S, -(-time_range.end_unix_nano // HOUR_NS) * HOUR_S
    for operator, unix_s in ((">=", first), ("<", end)):
        bound = conditions.bind(min(max(unix_s, 0), 2**32 - 1), "UInt32")
        conditions.add(f"start_time {operator} toDateTime({bound}, 'UTC')")


def add_span_times(conditions: Conditions, ranges: Iterable[TimeRange]) -> None:
    """Adds that `start_time` is that of a span that may have samples in these ranges. No span is longer than 23 hours
    (gateway/readers/otlp_spans.py); an hour is for what a task does after its span, and for clocks that differ."""
    around = [TimeRange(max(0, each.start_unix_nano - DAY_NS), each.end_unix_nano + HOUR_NS) for each in ranges]
    add_times(conditions, around, "start_time")


def add_days(conditions: Conditions, ranges: Iterable[tuple[int, int]]) -> None:
    """Adds that `time` is in one of these ranges [first, last) of whole days (UTC, counted from 1970).

    Reads partitions instead of `time`: each is a day.
    """

    def bound(day: int) -> str:  # Distributed tables have no _partition_value
        return conditions.bind(f"{date.fromordinal(_DAY_0 + day):%Y%m%d}", "String")

    conditions.add_any([f"_partition_id >= {bound(first)} AND _partition_id < {bound(last)}" for first, last in ranges])


def add_matchers(conditions: Conditions, matchers: Iterable[Matcher]) -> None:
    """Adds the matchers, for a table that has `series_id` and the columns of _COLUMN_OF_LABEL."""
    of_series = Conditions(parameters=conditions.parameters)
    for matcher in matchers:
        if matcher.label in _COLUMN_OF_LABEL:
            add_value_matcher(conditions, _COLUMN_OF_LABEL[matcher.label], matcher)
        else:
            add_series_matchers(of_series, [matcher])
    if of_series.expressions:
        conditions.add(f"series_id IN (SELECT series_id FROM series {of_series.where})")


def add_series_matchers(conditions: Conditions, matchers: Iterable[Matcher]) -> None:
    """Adds the matchers, for the table `series`."""
    for matcher in matchers:
        add_value_matcher(conditions, f"labels[{conditions.bind(matcher.label, 'String')}]", matcher)


def add_value_matcher(conditions: Conditions, label_value: str, matcher: Matcher) -> None:
    """Adds a matcher, for an SQL expression that has the label's value."""
    if matcher.operator in ("=", "!="):
        conditions.add(f"{label_value} {matcher.operator} {conditions.bind(matcher.value, 'String')}")
        return
    # The regular expression must be valid on its own: `a)|(b` would escape the brackets that anchor it. `match` does
    # not compile what it can decide by a substring search; replaceRegexpOne always compiles.
    conditions.add(f"replaceRegexpOne('', {conditions.bind(matcher.value, 'String')}, '') = ''")
    whole = conditions.bind(anchored(matcher.value), "String")
    conditions.add(f"{'NOT ' if matcher.operator == '!~' else ''}match({label_value}, {whole})")


def anchored(pattern: str) -> str:
    """Returns the regular expression that matches texts as a whole."""
    return f"^(?s:{pattern})$"


def matching(conditions: Conditions, value: str, matchers: Iterable[Matcher]) -> str:
    """Returns an expression that says whether an SQL expression `value` fulfils all matchers (at least one).
    Parameters are added to `conditions`."""
    alone = Conditions(parameters=conditions.parameters)
    for matcher in matchers:
        add_value_matcher(alone, value, matcher)
    return " AND ".join(alone.expressions)
