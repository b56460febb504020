"""The spans of samples: their names and IDs select like labels."""

import re
from collections.abc import Iterable, Sequence

from api.errors import bad_request
from api.queries.selection.conditions import Conditions, add_span_times, add_value_matcher, matching
from api.queries.selection.sample_operations import OPERATION
from api.queries.selection.selector import Matcher, SelectorError
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.span_operations import SPAN_NAME, has_rows

TRACE_ID = "trace_id"
SPAN_ID = "span_id"
"""SPAN_ID and SPAN_NAME select by the span of a sample. Senders may give their series a label `span_name` as well."""
REQUEST_LABELS = (OPERATION, SPAN_NAME, SPAN_ID)
"""What samples have by their request: these select and group like labels of series."""
NAME_OR_LABEL = "if(name != '', name, label)"
"""The SQL that groups samples by the name of their span, or else by the label `span_name` of their series."""

_HEX_OF_SPAN = "if(span_id = toFixedString('', 8), '', lower(hex(span_id)))"
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_NO_SPAN = "0" * 16
_HOW_TO_SELECT_TRACES = (
    "GET /api/v1/traces/{trace_id}/cpu is about one trace; POST /api/v1/merge takes a list of trace_ids, and the"
    " Pyroscope API a traceIdSelector"
)


def check_ids(matchers: Iterable[Matcher]) -> None:
    """Raises SelectorError if a matcher selects by trace ID, or compares with what is no span ID."""
    for matcher in matchers:
        if matcher.label == TRACE_ID:
            raise SelectorError("trace_id does not select samples", _HOW_TO_SELECT_TRACES)
        if matcher.label != SPAN_ID or matcher.operator not in ("=", "!=") or not matcher.value:
            continue
        if not _SPAN_ID.fullmatch(matcher.value) or matcher.value == _NO_SPAN:
            expected = "expected 16 hex digits in lower case, not all zero, or nothing"
            raise SelectorError(f"span_id: {expected}; got {matcher.value[:60]!r}")


def check_groups(labels: Iterable[str]) -> None:
    """Raises ApiError if one of these labels does not make groups."""
    if SPAN_ID in labels:
        raise bad_request("bad_parameter", "span_id does not make groups", "group by span_name, or select a span_id")
    if TRACE_ID in labels:
        hint = "/api/v1/traces lists traces with their CPU; group by operation for the kinds of requests"
        raise bad_request("bad_parameter", "trace_id does not make groups", hint)


def series_matchers(matchers: Iterable[Matcher]) -> list[Matcher]:
    """Returns the matchers of labels that series have."""
    return [matcher for matcher in matchers if matcher.label not in REQUEST_LABELS]


def split_span_matchers(matchers: Iterable[Matcher]) -> tuple[list[Matcher], list[Matcher]]:
    """Returns the matchers of the name and of the ID of the span, in this order."""
    matchers = list(matchers)
    by_name = [matcher for matcher in matchers if matcher.label == SPAN_NAME]
    return by_name, [matcher for matcher in matchers if matcher.label == SPAN_ID]


def add_span_matchers(
    conditions: Conditions, ranges: Sequence[TimeRange], matchers: Iterable[Matcher], has_series: bool = True
) -> None:
    """Adds the matchers of the span, for a table with trace_id and span_id. A sample without a known name has ''.

    `ranges`: in which samples are selected. `has_series`: the table has series_id.
    """
    by_name, by_id = split_span_matchers(matchers)
    for matcher in by_id:
        add_value_matcher(conditions, _HEX_OF_SPAN, matcher)
    if not by_name:
        return
    of_name, of_label, of_none = (
        matching(conditions, value, by_name) for value in ("name", f"labels['{SPAN_NAME}']", "''")
    )
    # The spans and series whose name is treated differently from no name.
    is_different = f"({of_name}) != ({of_none})"
    spans = Conditions(parameters=conditions.parameters)
    add_span_times(spans, ranges)
    candidates = f"SELECT trace_id, span_id FROM spans {spans.where} AND {is_different}"
    named = f"SELECT * FROM ({select_span_names(conditions, ranges, candidates)}) WHERE {is_different}"
    different = f"(trace_id, span_id) IN (SELECT trace_id, span_id FROM ({named}))"
    if has_series:
        series = f"SELECT series_id FROM series WHERE labels['{SPAN_NAME}'] != '' AND ({of_label}) != ({of_none})"
        different = f"({different} OR series_id IN ({series}))"
    conditions.add(f"{different} != ({of_none})")


def with_span_names(table: str, asked: Conditions, ranges: Sequence[TimeRange]) -> str:
    """Returns what to select from instead of a table of samples to have the column `name` of their spans as well.

    `asked`: conditions on `samples`, which lie in these time ranges. Parameters are added.
    """
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    candidates = (
        f"SELECT trace_id, span_id FROM samples {asked.where} AND span_id != toFixedString('', 8)"
        f" AND {has_rows('spans', spans.where)}"
    )
    names = select_span_names(asked, ranges, candidates)
    return f"{table} LEFT ANY JOIN ({names}) AS names_of USING (trace_id, span_id)"


def select_span_names(conditions: Conditions, ranges: Sequence[TimeRange], candidates: str) -> str:
    """Returns a SELECT of trace_id, span_id and name, each span once, for samples in these ranges. `candidates` selects
    trace_id and span_id. Parameters are added to `conditions`."""
    spans = Conditions(parameters=conditions.parameters)
    add_span_times(spans, ranges)
    spans.add(f"(trace_id, span_id) IN ({candidates})")
    # A span that is reported twice may have two names.
    return (
        "SELECT trace_id, span_id, last_name AS name FROM (SELECT trace_id, span_id, argMax(name, (end_time, name))"
        f" AS last_name FROM spans {spans.where} GROUP BY trace_id, span_id)"
    )
