"""SELECTs of the operation of each span, for queries and for rollups.

Activity says the operation of each span that had CPU (table `span_operations`). A program whose threads publish
contexts, but which sends no activity, has samples with a trace and a span, and no row in `span_operations`. If its
spans come as OTLP, each of them gets the operation of its entry span. A span is sent when it has ended, so an entry
span comes last. The operation of a sample is known as soon as all spans from its own up to the entry span are stored.

A sample of which neither knows an operation has the label `span_name` of its series, which senders of span profiles
set. A sink stores series before their samples, so the label is known as soon as the sample.
"""

_MOST_SPANS = 4000
"""The most spans of a request. One with more has no operations here: anybody may send spans, and all would be held in
memory."""
_ROUNDS = 12
"""Each doubles the number of steps up, so the deepest span is covered."""

# Each round has at most one row for each span. It joins the round before with itself: if A has reached B, and B has
# reached C, then A reaches C. So memory grows with the number of spans, not with its square.
# A span that is reported twice may have different parents and operations. The greatest of them are taken, because the
# aggregate functions that choose the last ones need ten times the memory.
_REPORTED = """
WITH RECURSIVE reached AS
(
    SELECT trace_id, span_id, toUInt8(0) AS round, toLowCardinality(named) AS operation,
        if(named != '', span_id, parent) AS up, named != '' AS arrives
    FROM
    (
        SELECT trace_id, span_id, reinterpretAsFixedString(max(reinterpretAsUInt64(parent_span_id))) AS parent,
            max(toString(operation)) AS named
        FROM spans {spans} AND trace_id IN
        (
            SELECT trace_id FROM spans {spans} AND {requests}
            GROUP BY trace_id HAVING count() <= {most}
        )
        GROUP BY trace_id, span_id
    )
    UNION ALL
    SELECT low.trace_id, low.span_id, toUInt8(low.round + 1), high.operation, high.up,
        low.operation = '' AND high.operation != ''
    FROM reached AS low INNER JOIN reached AS high ON low.trace_id = high.trace_id AND low.up = high.span_id
    WHERE low.round < {rounds} AND 1 IN (SELECT operation = '' FROM reached)
)
SELECT trace_id, span_id, toString(operation) AS operation, up AS entry_span_id FROM reached WHERE arrives"""


SPAN_NAME = "span_name"
"""The label of series that names a span."""
_NAMED_SERIES = f"WHERE labels['{SPAN_NAME}'] != ''"
SERIES_SPAN_NAMES = (
    f"SELECT series_id, any(toString(labels['{SPAN_NAME}'])) AS label FROM series {_NAMED_SERIES} GROUP BY series_id"
)
JOIN_SPAN_NAMES = f" LEFT ANY JOIN ({SERIES_SPAN_NAMES}) AS series_of USING (series_id)"
"""Adds the column `label` to rows of samples: the label of their series that names a span, or an empty string."""
OPERATION_OF_SAMPLE = "if(operation != '', operation, label)"
"""The operation of a row of `samples_with_operations`."""


def samples_with_operations(spans: str) -> str:
    """Returns what to select from instead of `samples` to have the columns of OPERATION_OF_SAMPLE as well. `spans`: a
    SELECT of the operations of the samples' spans (`select_span_operations`)."""
    return f"samples LEFT ANY JOIN ({spans}) AS spans_of USING (trace_id, span_id){JOIN_SPAN_NAMES}"


def select_span_operations(samples: str, active: str, spans: str, others: str = "") -> str:
    """Returns a SELECT of trace_id, span_id and operation, each span once.

    `samples`: WHERE ... of the samples that it is about; `active`: of the rows of `span_operations` near them.
    `others`: of rows that `active` leaves out, because their service is another one; activity may name a service
    differently than samples do. For `spans`, see `select_reported_operations`.
    """
    named = "SELECT trace_id, span_id, toString(operation) AS named, toUnixTimestamp64Nano(start_time) AS at_time"
    known = f"SELECT trace_id, span_id FROM span_operations {active}"
    found = [
        f"{named} FROM span_operations {active}",
        # What activity says of a span counts, if it says something.
        f"SELECT trace_id, span_id, operation, toInt64(-1) FROM ({select_reported_operations(samples, spans, known)})",
    ]
    if others:
        found.append(f"{named} FROM activity {_of_unknown_spans(samples, others, known)}")
    return (
        "SELECT trace_id, span_id, toString(argMax(named, (at_time, named))) AS operation"
        f" FROM ({' UNION ALL '.join(found)}) GROUP BY trace_id, span_id"
    )


def _of_unknown_spans(samples: str, others: str, known: str) -> str:
    """Returns WHERE ... of the rows of `activity` whose spans samples have and `known` does not have: few rows, and the
    table is ordered by trace."""
    unknown = f"{samples} AND trace_id != toFixedString('', 16) AND (trace_id, span_id) NOT IN ({known})"
    return (
        f"{others} AND operation != '' AND {has_rows('span_operations', others)}"
        f" AND (trace_id, span_id) IN (SELECT trace_id, span_id FROM samples {unknown})"
    )


def select_reported_operations(samples: str, spans: str, known: str) -> str:
    """Returns a SELECT of trace_id, span_id, operation and entry_span_id, each span once, for the requests that have
    samples whose spans are not in `known`, a SELECT of trace_id and span_id.

    `samples`: WHERE ... of the samples; `spans`: of the spans that may be theirs, also of entry spans.
    """
    unknown = f"{samples} AND span_id != toFixedString('', 8) AND (trace_id, span_id) NOT IN ({known})"
    requests = f"{has_rows('entry_spans', spans)} AND trace_id IN (SELECT trace_id FROM samples {unknown})"
    return _REPORTED.format(spans=spans, requests=requests, most=_MOST_SPANS, rounds=_ROUNDS)


def has_rows(table: str, where: str) -> str:
    """Returns an expression that is 0 if a table has no such row: what it is joined to by AND is then not read."""
    return f"(SELECT count() FROM (SELECT 1 FROM {table} {where} LIMIT 1)) > 0"


HAS_SPAN_NAMES = has_rows("series", _NAMED_SERIES)
"""Whether labels are operations anywhere."""
