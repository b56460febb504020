"""The requests that may have used the most CPU, where there are too many to sum up all of them.

`recent_operations` has the heaviest ones of each minute of an operation, or of a service by their samples, block by
block as they were stored. What they used there is added up here, and the sums choose of which requests the rows are
read. So a request is missed only if it was never among the heaviest of a minute.
"""

from dataclasses import dataclass

from api.queries.conditions import add_value_matcher
from api.queries.confidence import is_cpu
from api.queries.database import Database, texts
from api.queries.recent import OF_REQUESTS, are_many, are_stored, recent_conditions
from api.queries.sample_operations import OPERATION
from api.queries.selection import Selection
from icestream.recent_operations import HEAVIEST, packed_cpu, packed_trace

MORE_CANDIDATES = 1000
"""Pages after the first one are of so many candidates at least. Each costs a millisecond: its rows are read by ID."""
_PIECES = 10
"""Of so many pieces for each candidate, the largest ones, it is added up what a trace used."""


@dataclass(frozen=True)
class Candidates:
    trace_ids: list[str]
    complete_above_ns: int
    """Other requests did not use more than this in a minute of one operation, unless they were stored in pieces."""


def read_candidates(
    database: Database, selection: Selection, order: str, limit: int, is_first_page: bool
) -> Candidates | None:
    """Those for a list of `limit` requests in the `order` of `read_heaviest_traces`; None: all rows are read, because
    they are few, or because the selector or the time range needs it. Raises ApiError."""
    if any(matcher.label not in ("service", OPERATION) for matcher in selection.matchers):
        return None
    kinds = [OF_REQUESTS, selection.profile_type]
    if order == "thread_cpu_ns":
        kinds = [OF_REQUESTS]
    elif order == "sampled_cpu_ns" or not is_cpu(selection.profile_type):
        kinds = [selection.profile_type]
    ranges = [selection.time_range]
    if not are_many(database, ranges, [OF_REQUESTS, selection.profile_type]) or not are_stored(database, ranges):
        return None
    count = 2 * limit if is_first_page else max(2 * limit, MORE_CANDIDATES)
    found = [_read_kind(database, selection, kind, count) for kind in kinds]
    ids = dict.fromkeys(trace_id for each in found for trace_id in each.trace_ids)
    return Candidates(list(ids), max(each.complete_above_ns for each in found))


def _read_kind(database: Database, selection: Selection, profile_type: str, count: int) -> Candidates:
    """The `count` best candidates by thread CPU, or by samples of a profile type."""
    conditions = recent_conditions([selection.time_range], [profile_type])
    for matcher in selection.matchers:
        if matcher.label == "service" or profile_type == OF_REQUESTS:  # what is of samples has no operation
            add_value_matcher(conditions, matcher.label, matcher)
    rows = f"SELECT finalizeAggregation(heaviest) AS best FROM recent_operations {conditions.where}"
    pieces = f"SELECT arrayJoin(best) AS packed FROM ({rows}) ORDER BY packed LIMIT {_PIECES * (count + 1)}"
    answer = database.table(
        f"SELECT lower(hex(trace)) AS id, sum(cpu) AS used, count() AS pieces, min(cpu) AS least FROM"
        f" (SELECT {packed_trace('packed')} AS trace, {packed_cpu('packed')} AS cpu FROM ({pieces}))"
        " GROUP BY trace ORDER BY used DESC, trace DESC",
        conditions.parameters,
    )
    full = f"SELECT max({packed_cpu(f'best[{HEAVIEST}]')}) AS cpu FROM ({rows}) WHERE length(best) = {HEAVIEST}"
    least = [database.table(full, conditions.parameters)["cpu"][0].as_py()]
    if sum(answer["pieces"].to_pylist()) == _PIECES * (count + 1):  # there may be more
        least.append(min(answer["least"].to_pylist()))
    left_out = answer["used"].to_pylist()[count:]
    return Candidates(texts(answer["id"])[:count], max(0, *least, *left_out))
