"""The operations of samples: those of their spans, by activity (table `span_operations`), else by reported spans; else
the labels `span_name` of their series."""

from collections.abc import Iterable, Sequence
from typing import Any

from api.queries.selection.conditions import (
    Conditions,
    add_matchers,
    add_span_times,
    add_times,
    add_value_matcher,
    matching,
)
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse import span_operations
from icestream.clickhouse.span_operations import HAS_SPAN_NAMES, SPAN_NAME, samples_with_operations
from icestream.times import HOUR_NS

OPERATION = "operation"
"""Selected and grouped like a label, but not a label of series."""


def split_matchers(matchers: Iterable[Matcher]) -> tuple[list[Matcher], list[Matcher]]:
    """Returns the matchers of the operation, and the others."""
    matchers = list(matchers)
    of_operation = [matcher for matcher in matchers if matcher.label == OPERATION]
    return of_operation, [matcher for matcher in matchers if matcher.label != OPERATION]


def label_of_request(conditions: Conditions, label: str) -> str:
    """Returns an expression for what requests have of a label (icestream/labels/request_labels.py), in tables with the
    column `request_labels`; '' if they have none. Parameters are added."""
    return f"JSONExtractString(request_labels, {conditions.bind(label, 'String')})"


def add_request_matchers(conditions: Conditions, matchers: Iterable[Matcher]) -> None:
    """Adds matchers of the service and of labels of requests, for a table with the columns `service` and
    `request_labels`."""
    for matcher in matchers:
        if matcher.label == "service":
            add_value_matcher(conditions, "service", matcher)
        else:
            add_value_matcher(conditions, label_of_request(conditions, matcher.label), matcher)


def span_hours(time_range: TimeRange) -> TimeRange:
    """Returns the range of `span_operations` with the spans that had CPU in a time range. No interval is longer than an
    hour (collector/activity/activity_datagram.py), and a row says when the last one of its hour began."""
    first, end = time_range.start_unix_nano // HOUR_NS - 1, -(-time_range.end_unix_nano // HOUR_NS)
    return TimeRange(max(0, first) * HOUR_NS, end * HOUR_NS)


def select_span_operations(asked: Conditions, ranges: Sequence[TimeRange], matchers: Iterable[Matcher]) -> str:
    """Returns a SELECT of trace_id, span_id and operation, each span once.

    `asked`: conditions on `samples`, which lie in these time ranges. Parameters are added.
    `matchers`: those of the samples. Most samples have spans of their own service, whose activity is read first.
    """
    of_service = [matcher for matcher in matchers if matcher.label == "service"]
    active, others = active_spans(asked.parameters, ranges, of_service)
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    of_others = others.where if others else ""
    return span_operations.select_span_operations(asked.where, active.where, spans.where, of_others)


def active_spans(
    parameters: dict[str, Any], ranges: Sequence[TimeRange], of_service: list[Matcher]
) -> tuple[Conditions, Conditions | None]:
    """Returns conditions on `span_operations` and `activity` for spans that had CPU in time ranges: of services that
    match, and of all others, if there may be others."""
    active, others = Conditions(parameters=parameters), Conditions(parameters=parameters)
    for conditions in (active, others):
        add_times(conditions, map(span_hours, ranges), "start_time")
    if not of_service:
        return active, None
    add_matchers(active, of_service)
    others.add(f"NOT ({matching(others, 'service', of_service)})")
    return active, others


def select_reported_operations(asked: Conditions, ranges: Sequence[TimeRange], known: str) -> str:
    """Returns a SELECT of trace_id, span_id, operation and entry_span_id, each span once, for the requests that have
    samples whose spans are not in `known`, a SELECT of trace_id and span_id. For `asked`, see `select_span_operations`.
    """
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    return span_operations.select_reported_operations(asked.where, spans.where, known)


def add_operation_matchers(
    conditions: Conditions, asked: Conditions, ranges: Sequence[TimeRange], matchers: Iterable[Matcher]
) -> None:
    """Adds the matchers of the operation, for a table of samples. A sample without a known operation has ''. For
    `asked`, see `select_span_operations`; the parameters are those of `conditions`."""
    of_operation, others = split_matchers(matchers)
    if not of_operation:
        return
    of_span, of_label, of_none = (
        matching(conditions, value, of_operation) for value in ("operation", f"labels['{SPAN_NAME}']", "''")
    )
    # The spans and series whose operation is known and is treated differently from an unknown one.
    spans = select_span_operations(asked, ranges, others)
    differs = f"toUInt8(({of_span}) != ({of_none}))"
    # ClickHouse runs equal subqueries once. Spans that do not differ are only needed where there are labels.
    by_span = f"SELECT trace_id, span_id, {differs} AS differs FROM ({spans}) WHERE differs OR {HAS_SPAN_NAMES}"
    by_label = f"SELECT series_id FROM series WHERE ({of_label}) != ({of_none})"
    conditions.add(
        f"((trace_id, span_id, toUInt8(1)) IN ({by_span}) OR ({HAS_SPAN_NAMES} AND series_id IN ({by_label})"
        f" AND (trace_id, span_id, toUInt8(0)) NOT IN ({by_span}))) != ({of_none})"
    )


def with_operations(asked: Conditions, ranges: Sequence[TimeRange], matchers: Iterable[Matcher]) -> str:
    """Returns what to select from instead of `samples` to have the columns of OPERATION_OF_SAMPLE as well. For the
    parameters, see `select_span_operations`."""
    return samples_with_operations(select_span_operations(asked, ranges, matchers))
