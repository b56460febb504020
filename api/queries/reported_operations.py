"""The operations of spans that came without activity, as senders of OTLP send them: those of their entry spans.

A program whose threads publish contexts, but which sends no activity, has samples with a trace and a span, and no row
in `span_operations`. Each of its spans comes when it has ended, so an entry span comes last. A query knows the
operation as soon as all spans from that of a sample up to the entry span are stored.
"""

from collections.abc import Iterable, Sequence

from api.queries.conditions import Conditions, add_matchers, add_times
from api.queries.selector import Matcher
from icestream.times import DAY_NS, HOUR_NS

_MOST_SPANS = 4000
"""Of a request. One with more has no operations here: looking for parents takes the square of their number."""
_ROUNDS = 12
"""Each doubles the number of steps up, so the deepest span is covered."""

_SQL = f"""
SELECT trace_id, span_id, operations[at] AS operation, ids[at] AS entry_span_id
FROM
(
    SELECT trace_id, ids, operations,
        arrayFold((up, round) -> arrayMap(i -> if(i = 0, 0, up[greatest(i, 1)]), up), range({_ROUNDS}), parent_rows)
            AS entry_rows
    FROM
    (
        SELECT trace_id, groupArray(span_id) AS ids, groupArray(reinterpretAsUInt64(span_id)) AS keys,
            groupArray(reinterpretAsUInt64(parent)) AS parents, groupArray(named) AS operations,
            arrayMap(
                (parent, operation, i) -> if(operation != '', toUInt64(i), indexOf(keys, parent)),
                parents, operations, arrayEnumerate(keys)
            ) AS parent_rows
        FROM
        (
            SELECT trace_id, span_id, argMax(parent_span_id, (end_time, parent_span_id)) AS parent,
                toString(argMax(operation, (operation != '', end_time, operation))) AS named
            FROM spans {{spans}}
            GROUP BY trace_id, span_id
        )
        GROUP BY trace_id
        HAVING count() <= {_MOST_SPANS}
    )
)
ARRAY JOIN ids AS span_id, entry_rows AS at
WHERE at > 0 AND operations[greatest(at, 1)] != ''"""


def select_reported_operations(
    conditions: Conditions, ranges: Sequence[tuple[int, int]], matchers: Iterable[Matcher], known: str
) -> str:
    """Returns a SELECT of trace_id, span_id, operation and entry_span_id, for the requests that have samples in these
    ranges [start, end) of Unix nanoseconds whose spans are not in `known`, a SELECT of trace_id and span_id.

    Of `matchers`, those of the service choose samples. Parameters are added to `conditions`.
    """
    samples = Conditions(parameters=conditions.parameters)
    add_times(samples, ranges)
    add_matchers(samples, [matcher for matcher in matchers if matcher.label == "service"])
    samples.add("span_id != toFixedString('', 8)")
    samples.add(f"(trace_id, span_id) NOT IN ({known})")
    spans = Conditions(parameters=conditions.parameters)
    # As of sample_spans.py: no span is longer than 23 hours.
    add_times(spans, [(max(0, start - DAY_NS), end + HOUR_NS) for start, end in ranges], "start_time")
    spans.add(f"trace_id IN (SELECT trace_id FROM trace_samples {samples.where})")
    return _SQL.format(spans=spans.where)
