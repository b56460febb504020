"""Conditions of SQL: what a caller wrote is only ever the value of a parameter, never text of a query."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from api.queries.selector import Matcher

_HOT = {"service": "service"}
"""Labels that are columns of the sample tables, so that their primary key prunes."""


@dataclass
class Where:
    """Conditions that all must hold, and the parameters they name (`{p0:String}`)."""

    conditions: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def bind(self, value: Any, kind: str) -> str:
        """A placeholder of ClickHouse type `kind` for `value`."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{kind}}}"

    def add(self, condition: str) -> None:
        self.conditions.append(condition)

    @property
    def sql(self) -> str:
        """`WHERE ...`, or nothing where there is no condition."""
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


def add_time(where: Where, start_unix_nano: int, end_unix_nano: int, column: str = "time") -> None:
    """`column` in [start, end), in milliseconds."""
    for operator, nanos in ((">=", start_unix_nano), ("<", end_unix_nano)):
        where.add(f"{column} {operator} fromUnixTimestamp64Milli({where.bind(nanos // 10**6, 'Int64')}, 'UTC')")


def add_days(where: Where, first_day: int, days: int) -> None:
    """`time` within whole days of UTC, counted from 1970; without reading `time`, as tables have a partition a day."""
    day = "toUInt16(_partition_value.1)"
    where.add(f"{day} >= {where.bind(first_day, 'UInt32')}")
    where.add(f"{day} < {where.bind(first_day + days, 'UInt32')}")


def add_matchers(where: Where, matchers: Iterable[Matcher]) -> None:
    """Conditions on a table that has `series_id` and the hot columns."""
    cold = []
    for matcher in matchers:
        if matcher.label in _HOT:
            _add_matcher(where, where, _HOT[matcher.label], matcher)
        else:
            cold.append(matcher)
    if cold:
        where.add(f"series_id IN (SELECT series_id FROM series {_series_where(where, cold)})")


def add_series_matchers(where: Where, matchers: Iterable[Matcher]) -> None:
    """Conditions on the table `series` itself."""
    for matcher in matchers:
        _add_matcher(where, where, f"labels[{where.bind(matcher.label, 'String')}]", matcher)


def _series_where(outer: Where, matchers: list[Matcher]) -> str:
    inner = Where()
    for matcher in matchers:
        _add_matcher(inner, outer, f"labels[{outer.bind(matcher.label, 'String')}]", matcher)
    return inner.sql


def _add_matcher(where: Where, binder: Where, value: str, matcher: Matcher) -> None:
    if matcher.operator in ("=", "!="):
        where.add(f"{value} {matcher.operator} {binder.bind(matcher.value, 'String')}")
        return
    # The expression alone has to be valid, too: `a)|(b` would slip out of the brackets that anchor it. (`match` does
    # not compile one that it can decide by a substring; this does.)
    where.add(f"replaceRegexpOne('', {binder.bind(matcher.value, 'String')}, '') = ''")
    anchored = binder.bind(f"^(?s:{matcher.value})$", "String")
    where.add(f"{'NOT ' if matcher.operator == '!~' else ''}match({value}, {anchored})")
