"""The time of one request: how long it took, how long threads worked for it, and what they waited for."""

from dataclasses import dataclass

import numpy as np

from api.array_types import Ids, Values
from api.errors import too_large
from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions, add_time
from api.queries.selection.time_range import TimeRange
from api.queries.traces.trace_cpu import TraceCpu, known_span_id, trace_conditions
from icestream.topics import OFF_CPU_PROFILE_TYPE

_NEAR_NS = 60 * 10**9
"""A host profiles waits if it sent some at most this long before or after a request: some thread always waits."""

_ACTIVITY_SQL = """
SELECT lower(hex(span_id)) AS id, sum(until - since) AS thread_time, sum(thread_cpu_ns) AS cpu,
    sum(greatest(0, least(until, {end}) - greatest(since, before, {start}))) AS covered,
    groupUniqArray(service) AS services, groupUniqArray((host_id, pid, tid)) AS threads
FROM
(
    SELECT span_id, since, until, thread_cpu_ns, toString(service) AS service, host_id, pid, tid,
        max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM
    (
        SELECT span_id, toUnixTimestamp64Nano(start_time) AS since, since + toInt64(duration_ns) AS until,
            toInt64(activity.thread_cpu_ns) AS thread_cpu_ns, service, host_id, pid, tid
        FROM activity {where}
    )
)
GROUP BY id"""


@dataclass(frozen=True)
class SpanTime:
    """Time of threads in one span, without its children."""

    thread_time_ns: int = 0
    cpu_ns: int = 0


@dataclass(frozen=True)
class Activity:
    """The intervals in which threads worked for a request."""

    spans: dict[str, SpanTime]  # by span ID
    services: list[str]
    threads: int
    covered_ns: int
    """How long at least one thread worked for it, between its start and its end."""


@dataclass(frozen=True)
class RequestWaits:
    """Off-CPU samples of a request, n rows by span and stack."""

    span_ids: list[str]
    stack_ids: Ids
    values: Values
    squares: float  # the sum of the squares of all values
    samples: int

    @property
    def total(self) -> int:
        return int(self.values.sum())


def duration_of(cpu: TraceCpu) -> TimeRange:
    """From the start of the root span to its end; without spans, all that is known of it."""
    root = next(iter(cpu.reported.spans.values()), None)
    return (
        cpu.time_range
        if root is None
        else TimeRange(root.start_unix_nano, max(root.end_unix_nano, root.start_unix_nano + 1))
    )


def read_activity(database: Database, trace_id: str, of: TimeRange) -> Activity:
    """Raises ApiError."""
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    answer = database.table(
        _ACTIVITY_SQL.format(
            where=conditions.where,
            start=conditions.bind(of.start_unix_nano, "Int64"),
            end=conditions.bind(of.end_unix_nano, "Int64"),
        ),
        conditions.parameters,
    )
    rows = answer.to_pylist()
    return Activity(
        {known_span_id(row["id"].decode()): SpanTime(row["thread_time"], row["cpu"]) for row in rows},
        sorted({service.decode(errors="replace") for row in rows for service in row["services"]}),
        len({tuple(thread.values()) for row in rows for thread in row["threads"]}),
        sum(row["covered"] for row in rows),
    )


def read_waits(database: Database, trace_id: str, services: list[str], max_stacks: int) -> RequestWaits:
    """What threads of these services waited for; of all services if none is given. Raises ApiError."""
    conditions = trace_conditions(trace_id, OFF_CPU_PROFILE_TYPE)
    if services:
        conditions.add(f"service IN {conditions.bind(services, 'Array(String)')}")
    answer = database.table(
        "SELECT lower(hex(span_id)) AS span, stack_id, sum(value) AS waited, sum(count) AS samples,"
        " sum(toFloat64(value) * toFloat64(value) * sign(count)) AS squares"
        f" FROM trace_samples {conditions.where} GROUP BY span, stack_id HAVING sum(count) > 0"
        f" LIMIT {int(max_stacks) + 1}",
        conditions.parameters,
    )
    if len(answer) > max_stacks:
        raise too_large(f"the request has more than {max_stacks} different stacks of waits")
    return RequestWaits(
        [known_span_id(span) for span in texts(answer["span"])],
        answer["stack_id"].to_numpy(),
        answer["waited"].to_numpy().astype(np.int64),
        max(float(np.sum(answer["squares"].to_numpy())), 0.0),
        int(np.sum(answer["samples"].to_numpy())),
    )


def read_shares(database: Database, hosts: list[str], near: TimeRange) -> dict[str, int]:
    """One of how many waits each host followed at that time; hosts that followed none are left out. Raises ApiError."""
    conditions = Conditions()
    around = TimeRange(max(0, near.start_unix_nano - _NEAR_NS), near.end_unix_nano + _NEAR_NS)
    conditions.add("kind = 'samples'")
    conditions.add(f"collector IN {conditions.bind(hosts, 'Array(String)')}")  # it is called as its host; by the key
    conditions.add(f"profile_type = {conditions.bind(OFF_CPU_PROFILE_TYPE, 'String')}")
    add_time(conditions, around, "last_time")
    answer = database.table(
        f"SELECT toString(collector) AS host, max(period) AS share FROM batches {conditions.where} GROUP BY host",
        conditions.parameters,
    )
    return dict(zip(texts(answer["host"]), answer["share"].to_pylist(), strict=True))
