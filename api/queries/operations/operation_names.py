"""Which operations services have."""

from api.queries.database import Database, texts
from api.queries.operations.any_operations import ANSWERING_LEVELS, FINER_LEVELS, OPERATION_TABLES, any_operations
from api.queries.rollups import make_plan
from api.queries.selection.conditions import (
    Conditions,
    add_matchers,
    add_series_matchers,
    add_span_times,
    add_times,
    add_value_matcher,
)
from api.queries.selection.sample_operations import select_span_operations, span_hours, split_matchers
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.rollups import Level
from icestream.clickhouse.span_operations import HAS_SPAN_NAMES, JOIN_SPAN_NAMES, SERIES_SPAN_NAMES, SPAN_NAME, has_rows
from icestream.times import HOUR_NS

_ROWS = ("span_operations", "entry_spans")
"""The tables with operations by activity, and by spans that were reported."""


def read_operation_names(
    database: Database, matchers: tuple[Matcher, ...], time_range: TimeRange | None, contains: str, limit: int
) -> list[str]:
    """The operations that services had in the hours of a time range by samples, activity or spans, in order, at most
    `limit`. Only the matchers of the service and the operation count. Without a time range, all times count, and all
    labels `span_name`; then names that only samples tell are missing until rollups have them. Raises ApiError."""
    of_operation, others = split_matchers(matchers)
    of_service = [matcher for matcher in others if matcher.label == "service"]
    named = Conditions()
    named.add("name != ''")
    for matcher in of_operation:
        add_value_matcher(named, "name", matcher)
    if contains:
        named.add(f"positionCaseInsensitiveUTF8(name, {named.bind(contains, 'String')}) > 0")
    if time_range is None:
        sources = [_select(table, _of_service(named, of_service)) for table in _ROWS]
        sources += [_select(table, _of_builds(level, named, of_service)) for level, table in OPERATION_TABLES.items()]
        labelled = Conditions(parameters=named.parameters)
        add_series_matchers(labelled, of_service)
        sources.append(f"SELECT DISTINCT labels['{SPAN_NAME}'] FROM series {labelled.where}")
    else:
        hours = whole_hours(time_range)
        if not any_operations(database, [hours]):
            return []
        sources = _of_hours(database, named, of_service, hours)
    answer = database.table(
        f"SELECT DISTINCT toString(operation) AS name FROM ({' UNION ALL '.join(sources)}) {named.where}"
        f" ORDER BY name LIMIT {int(limit)}",
        named.parameters,
    )
    return texts(answer["name"])


def whole_hours(time_range: TimeRange) -> TimeRange:
    """The whole hours that a time range touches."""
    start, end = time_range.start_unix_nano // HOUR_NS, -(-time_range.end_unix_nano // HOUR_NS)
    return TimeRange(start * HOUR_NS, max(end, start + 1) * HOUR_NS)


def _of_hours(database: Database, named: Conditions, of_service: list[Matcher], hours: TimeRange) -> list[str]:
    plan = make_plan(database, hours, ANSWERING_LEVELS, finer=FINER_LEVELS)
    sources = []
    for part in plan.parts:
        conditions = _of_service(named, of_service)
        part.add_to(conditions, hours)
        sources.append(_select(OPERATION_TABLES[part.level], conditions))
    if not plan.samples:
        return sources
    for table in _ROWS:
        conditions = _of_service(named, of_service)
        add_times(conditions, plan.samples, "start_time")
        sources.append(_select(table, conditions))
    labelled = _of_service(named, of_service)
    add_times(labelled, plan.samples)
    asked = Conditions([*labelled.expressions, "trace_id != toFixedString('', 16)"], named.parameters)
    spans = select_span_operations(asked, plan.samples, of_service)
    sampled = f"(trace_id, span_id) IN (SELECT trace_id, span_id FROM samples {asked.where})"
    labelled.add(f"{HAS_SPAN_NAMES} AND series_id IN (SELECT series_id FROM ({SERIES_SPAN_NAMES}))")
    labelled.add(f"(trace_id, span_id) NOT IN (SELECT trace_id, span_id FROM ({spans}))")
    return [
        *sources,
        f"SELECT DISTINCT operation FROM ({spans}) WHERE {_has_spans(asked, plan.samples)} AND {sampled}",
        f"SELECT DISTINCT label FROM samples{JOIN_SPAN_NAMES} {labelled.where}",
    ]


def _has_spans(asked: Conditions, ranges: list[TimeRange]) -> str:
    """Returns an expression that is 0 where no span has an operation: most systems without tracing have only samples.
    Parameters are added to `asked`."""
    active, reported = Conditions(parameters=asked.parameters), Conditions(parameters=asked.parameters)
    add_times(active, map(span_hours, ranges), "start_time")
    add_span_times(reported, ranges)
    return f"({has_rows('span_operations', active.where)} OR {has_rows('entry_spans', reported.where)})"


def _of_builds(level: Level, named: Conditions, of_service: list[Matcher]) -> Conditions:
    """Conditions on the table of a level, for the newest complete build of each bucket: builds that were killed, or
    that others have followed, may still have rows there."""
    conditions = _of_service(named, of_service)
    conditions.add(
        "build IN (SELECT argMax(build, (state = 'final', build)) FROM rollup_builds"
        f" WHERE level = {conditions.bind(level.name, 'String')} AND state != 'begun' GROUP BY start_time)"
    )
    return conditions


def _of_service(named: Conditions, of_service: list[Matcher]) -> Conditions:
    conditions = Conditions(parameters=named.parameters)
    add_matchers(conditions, of_service)
    return conditions


def _select(table: str, conditions: Conditions) -> str:
    return f"SELECT DISTINCT toString(operation) AS operation FROM {table} {conditions.where}"
