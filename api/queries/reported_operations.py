"""The operations of spans that came without activity, as senders of OTLP send them: those of their entry spans.

A program whose threads publish contexts, but which sends no activity, has samples with a trace and a span, and no row
in `span_operations`. Each of its spans comes when it has ended, so an entry span comes last. A query knows the
operation as soon as all spans from that of a sample up to the entry span are stored.
"""

from collections.abc import Sequence

from api.queries.conditions import Conditions, add_span_times, has_rows

_MOST_SPANS = 4000
"""Of a request. One with more has no operations here: anybody may send spans, and all would be held in memory."""
_ROUNDS = 12
"""Each doubles the number of steps up, so the deepest span is covered."""

# Each round has a row for each span that may still arrive, and joins the round before with itself: what a span has
# reached goes on to what that has reached. So memory grows with the spans, and not with their square. Who reports a
# span twice may give it different parents and operations. The greatest count: the aggregate functions that would choose
# the last ones take ten times the memory.
_SQL = f"""
WITH RECURSIVE reached AS
(
    SELECT trace_id, span_id, toUInt8(0) AS round, toLowCardinality(named) AS operation,
        if(named != '', span_id, parent) AS up, named != '' AS arrives
    FROM
    (
        SELECT trace_id, span_id, reinterpretAsFixedString(max(reinterpretAsUInt64(parent_span_id))) AS parent,
            max(toString(operation)) AS named
        FROM spans {{times}} AND trace_id IN
        (
            SELECT trace_id FROM spans {{times}} AND {{requests}}
            GROUP BY trace_id HAVING count() <= {_MOST_SPANS}
        )
        GROUP BY trace_id, span_id
    )
    UNION ALL
    SELECT low.trace_id, low.span_id, toUInt8(low.round + 1), high.operation, high.up,
        low.operation = '' AND high.operation != ''
    FROM reached AS low INNER JOIN reached AS high ON low.trace_id = high.trace_id AND low.up = high.span_id
    WHERE low.round < {_ROUNDS} AND 1 IN (SELECT operation = '' FROM reached)
)
SELECT trace_id, span_id, toString(operation) AS operation, up AS entry_span_id FROM reached WHERE arrives"""


def select_reported_operations(asked: Conditions, ranges: Sequence[tuple[int, int]], known: str) -> str:
    """Returns a SELECT of trace_id, span_id, operation and entry_span_id, each span once, for the requests that have
    samples whose spans are not in `known`, a SELECT of trace_id and span_id.

    `asked`: conditions on `samples`, which lie in these ranges [start, end) of Unix nanoseconds. Parameters are added.
    """
    spans = Conditions(parameters=asked.parameters)
    add_span_times(spans, ranges)
    samples = f"{asked.where} AND span_id != toFixedString('', 8) AND (trace_id, span_id) NOT IN ({known})"
    requests = f"{has_rows('entry_spans', spans)} AND trace_id IN (SELECT trace_id FROM samples {samples})"
    return _SQL.format(times=spans.where, requests=requests)
