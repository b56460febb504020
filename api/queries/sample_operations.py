"""The operations of samples: those of their spans, by activity (table `span_operations`), else by reported spans."""

from collections.abc import Iterable, Sequence

from api.queries.conditions import Conditions, add_matchers, add_span_times, add_times, matching
from api.queries.selector import Matcher
from icestream import span_operations
from icestream.times import HOUR_NS

OPERATION = "operation"
"""The label that is no label of series."""


def split_matchers(matchers: Iterable[Matcher]) -> tuple[list[Matcher], list[Matcher]]:
    """Returns the matchers of the operation, and the others."""
    matchers = list(matchers)
    of_operation = [matcher for matcher in matchers if matcher.label == OPERATION]
    return of_operation, [matcher for matcher in matchers if matcher.label != OPERATION]


def span_hours(start_unix_nano: int, end_unix_nano: int) -> tuple[int, int]:
    """Returns the range of `span_operations` with the spans that had CPU in [start, end). No interval is longer than an
    hour (collector/activity/activity_datagram.py), and a row says when the last one of its hour began."""
    return max(0, start_unix_nano // HOUR_NS - 1) * HOUR_NS, -(-end_unix_nano // HOUR_NS) * HOUR_NS


def select_span_operations(
    asked: Conditions,
    ranges: Sequence[tuple[int, int]],
    matchers: Iterable[Matcher],
    of_their_traces: bool = False,
) -> str:
    """Returns a SELECT of trace_id, span_id and operation, each span once.

    `asked`: conditions on `samples`, which lie in these ranges [start, end) of Unix nanoseconds. Parameters are added.
    Of `matchers`, those of the service choose among the spans that activity knows. `of_their_traces`: only the traces
    of the samples are read, which are few of all.
    """
    active = Conditions(parameters=asked.parameters)
    add_times(active, [span_hours(start, end) for start, end in ranges], "start_time")
    add_matchers(active, [matcher for matcher in matchers if matcher.label == "service"])
    if of_their_traces:
        active.add(f"trace_id IN (SELECT trace_id FROM samples {asked.where})")
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    return span_operations.select_span_operations(asked.where, active.where, spans.where)


def select_reported_operations(asked: Conditions, ranges: Sequence[tuple[int, int]], known: str) -> str:
    """Returns a SELECT of trace_id, span_id, operation and entry_span_id, each span once, for the requests that have
    samples whose spans are not in `known`, a SELECT of trace_id and span_id. For `asked`, see `select_span_operations`.
    """
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    return span_operations.select_reported_operations(asked.where, spans.where, known)


def add_operation_matchers(
    conditions: Conditions, asked: Conditions, ranges: Sequence[tuple[int, int]], matchers: Iterable[Matcher]
) -> None:
    """Adds the matchers of the operation, for a table of samples. A sample without a known operation has ''. For
    `asked`, see `select_span_operations`; the parameters are those of `conditions`."""
    of_operation, others = split_matchers(matchers)
    if not of_operation:
        return
    matches, empty_matches = (matching(conditions, value, of_operation) for value in ("operation", "''"))
    # The spans whose operation is known and is treated differently from an unknown one.
    spans = select_span_operations(asked, ranges, others)
    different = f"SELECT trace_id, span_id FROM ({spans}) WHERE ({matches}) != ({empty_matches})"
    conditions.add(f"((trace_id, span_id) IN ({different})) != ({empty_matches})")


def with_operations(asked: Conditions, ranges: Sequence[tuple[int, int]], matchers: Iterable[Matcher]) -> str:
    """Returns what to select from instead of `samples` to have the column `operation` as well. For the parameters, see
    `select_span_operations`."""
    spans = select_span_operations(asked, ranges, matchers)
    return f"samples LEFT ANY JOIN ({spans}) AS spans_of USING (trace_id, span_id)"
