"""Whether services have operations at all: most systems without tracing have only samples, whose spans need not be
looked for then."""

from collections.abc import Sequence

from api.queries.database import Database
from api.queries.selection.conditions import Conditions, add_span_times, add_times
from api.queries.selection.sample_operations import active_spans
from api.queries.selection.time_range import TimeRange
from icestream.clickhouse.rollups import OPERATION_DAYS, OPERATION_HOURS, OPERATION_MINUTES, OPERATION_SIX_HOURS
from icestream.clickhouse.span_operations import HAS_SPAN_NAMES
from icestream.times import DAY_NS

OPERATION_TABLES = {
    OPERATION_MINUTES: "operation_minutes",
    OPERATION_HOURS: "operation_hours",
    OPERATION_SIX_HOURS: "operation_six_hours",
    OPERATION_DAYS: "operation_days",
}
ANSWERING_LEVELS = (OPERATION_DAYS, OPERATION_SIX_HOURS, OPERATION_HOURS)
"""For `make_plan`, the best one first."""
FINER_LEVELS = (OPERATION_MINUTES,)


_ROWS = ("activity", "entry_spans", "span_operations")
_NONE_EVER = f"""
SELECT NOT {HAS_SPAN_NAMES} AND countIf(total_rows = 0) = {{number:UInt8}} AS none
FROM system.tables WHERE database = currentDatabase() AND name IN {{tables:Array(String)}}"""
"""Takes a sixth of the time of looking into empty tables. Distributed tables do not know how many rows they have."""


def any_operations(database: Database, ranges: Sequence[TimeRange]) -> bool:
    """Whether anything tells of operations in these time ranges (at least one): rows, rollups, or labels of any time.
    Raises ApiError."""
    tables = ["spans", *_ROWS, *OPERATION_TABLES.values()]
    if database.table(_NONE_EVER, {"number": len(tables), "tables": tables})["none"][0].as_py():
        return False
    spans = Conditions()
    add_span_times(spans, ranges)
    active, _ = active_spans(spans.parameters, ranges, [])
    summed = Conditions(["operation != ''"], spans.parameters)
    add_times(summed, map(_days, ranges), "start_time")
    sources = [
        ("spans", spans.where),
        *((table, active.where) for table in _ROWS),
        *((table, summed.where) for table in OPERATION_TABLES.values()),
    ]
    some = " UNION ALL ".join(f"(SELECT 1 FROM {table} {where} LIMIT 1)" for table, where in sources)
    answer = database.table(f"SELECT {HAS_SPAN_NAMES} OR (SELECT count() FROM ({some})) AS some", spans.parameters)
    return bool(answer["some"][0].as_py())


def _days(time_range: TimeRange) -> TimeRange:
    """The whole days that a time range touches."""
    first, end = time_range.start_unix_nano // DAY_NS, -(-time_range.end_unix_nano // DAY_NS)
    return TimeRange(first * DAY_NS, max(end, first + 1) * DAY_NS)
