"""The CPU of one request: by span, service and host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.queries.database import Database, texts
from api.queries.operations.confidence import FEW_SAMPLES, SAMPLED_COLUMNS, Sampled, is_cpu, sampled_rows
from api.queries.selection.conditions import Conditions, add_times
from api.queries.selection.sample_operations import span_hours
from api.queries.selection.time_range import TimeRange
from api.queries.traces.sample_period import read_periods
from api.queries.traces.trace_spans import ReportedSpans, read_spans
from icestream.clickhouse.span_operations import SERIES_SPAN_NAMES

_MAX_ROWS = 10_000
"""The most spans, and hosts, of an answer: the heaviest ones. Sums are those of all."""
_NEAR_NS = 300 * 10**9
"""A request without samples is taken to be sampled as often as its services this long before and after it."""
_NO_SPAN = "0" * 16
NO_SPAN_TIME = {"thread_time_ns": 0, "waits": None}
"""What a span has in which no thread was seen."""

_CPU_SQL = """
SELECT k.1 AS column, k.2 AS key,
    toString(argMax(part.service, (part.sampled_cpu + part.thread_cpu, part.service))) AS service,
    sum(if({has_clock}, part.thread_cpu, part.sampled_cpu)) AS cpu, sum(part.sampled_cpu) AS sampled_cpu,
    sum(part.thread_cpu) AS thread_cpu, sum(part.samples) AS samples, sum(part.squares) AS squares,
    max(part.longest_period) AS longest_period, min(part.first) AS first, max(part.last) AS last,
    count() OVER (PARTITION BY column) AS keys
FROM
(
    SELECT arrayJoin([{keys}]) AS k, service, {sampled}, toInt64(0) AS thread_cpu,
        min(toUnixTimestamp64Milli(time)) * 1000000 AS first, max(toUnixTimestamp64Milli(time)) * 1000000 AS last
    FROM trace_samples {samples} GROUP BY k, service
    UNION ALL
    SELECT arrayJoin([{keys}]) AS k, service, 0, 0, 0, 0, toInt64(sum(thread_cpu_ns)),
        min(toUnixTimestamp64Nano(start_time)), max(toUnixTimestamp64Nano(start_time) + toInt64(duration_ns))
    FROM activity {activity} GROUP BY k, service
) AS part
GROUP BY k ORDER BY column, cpu DESC, sampled_cpu DESC, key LIMIT {most} BY column, if(column = 'service', key, '')
"""
_HAS_CLOCK = "part.service IN (SELECT service FROM activity {activity} GROUP BY service HAVING sum(thread_cpu_ns) > 0)"
_KEYS = {"service": "toString(service)", "span_id": "lower(hex(span_id))", "host_id": "toString(host_id)"}


@dataclass(frozen=True)
class CpuSums:
    """The CPU of a service, host or span of a request, or of all of it, in nanoseconds."""

    key: str  # its name or ID
    service: str  # of a span, the one that used the most
    cpu_ns: int
    thread_cpu_ns: int
    sampled: Sampled
    first_unix_nano: int
    last_unix_nano: int

    def as_json(self, period: float, profile_type: str) -> dict[str, Any]:
        return {"cpu_ns": self.cpu_ns, "thread_cpu_ns": self.thread_cpu_ns} | self.sampled.as_json(period, profile_type)


@dataclass(frozen=True)
class TraceCpu:
    """What is known of one request."""

    trace_id: str
    profile_type: str
    services: list[CpuSums]  # all of them, heaviest first
    spans: list[CpuSums]  # the heaviest, if they were asked for
    more_spans: int
    hosts: list[CpuSums]  # the heaviest, if they were asked for
    more_hosts: int
    reported: ReportedSpans
    period: float  # what the longest of its samples stands for, or 0 if that is not known
    time_range: TimeRange  # from the first to the last thing that is known of it

    @property
    def all_services(self) -> list[str]:
        """The services that worked for it, heaviest first."""
        reported = (span.service for span in self.reported.spans.values())
        return list(dict.fromkeys([*(each.key for each in self.services), *reported]))

    @property
    def samples(self) -> int:
        return sum(each.sampled.samples for each in self.services)

    def head(self) -> dict[str, Any]:
        """What each answer about the request says of all of it."""
        sampled = Sampled(
            sum(each.sampled.value for each in self.services),
            self.samples,
            sum(each.sampled.squares for each in self.services),
            max((each.sampled.longest_period for each in self.services), default=0.0),
        )
        cpu = sum(each.cpu_ns for each in self.services)
        expected = round(cpu / self.period, 2) if self.period and is_cpu(self.profile_type) else None
        return {
            "trace_id": self.trace_id,
            "operation": self.reported.operation,
            "service": self.reported.service or next((each.key for each in self.services), ""),
            "cpu_ns": cpu,
            "thread_cpu_ns": sum(each.thread_cpu_ns for each in self.services),
            **sampled.as_json(self.period, self.profile_type),
            "expected_samples": expected,
            "few_samples": self.samples < FEW_SAMPLES,
        }


def read_trace_cpu(database: Database, trace_id: str, profile_type: str, broken_down: bool = False) -> TraceCpu | None:
    """Returns None if nothing is known of the trace. `broken_down`: reads its spans and hosts, too. Raises ApiError."""
    reported = read_spans(database, trace_id)
    sums = _read_sums(database, trace_id, profile_type, tuple(_KEYS) if broken_down else ("service",))
    services, _ = sums["service"]
    times = [(each.first_unix_nano, each.last_unix_nano) for each in services]
    times += [(span.start_unix_nano, span.end_unix_nano) for span in reported.spans.values()]
    if not times:
        return None
    start = min(first for first, _ in times)
    time_range = TimeRange(start, max(start + 1, *(last for _, last in times)))
    period = max((each.sampled.longest_period for each in services), default=0.0)
    if not period:
        near = TimeRange(max(0, start - _NEAR_NS), time_range.end_unix_nano + _NEAR_NS)
        periods = read_periods(database, profile_type, [each.key for each in services], near)
        period = max(periods.values(), default=0.0)
    (spans, all_spans), (hosts, all_hosts) = sums.get("span_id", ([], 0)), sums.get("host_id", ([], 0))
    return TraceCpu(
        trace_id,
        profile_type,
        services,
        spans,
        all_spans - len(spans),
        hosts,
        all_hosts - len(hosts),
        reported,
        period,
        time_range,
    )


def breakdown(cpu: TraceCpu, of_spans: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The request by span, service and host, as the API gives it; with more members of spans, by span ID."""

    def listed(name: str, rows: Sequence[CpuSums]) -> list[dict[str, Any]]:
        return [{name: row.key} | row.as_json(cpu.period, cpu.profile_type) for row in rows]

    return {
        "spans": [span | of_spans.get(span["span_id"], NO_SPAN_TIME) for span in _spans(cpu)],
        "more_spans": cpu.more_spans + cpu.reported.more,
        "services": listed("service", cpu.services),
        "hosts": listed("host_id", cpu.hosts),
        "more_hosts": cpu.more_hosts,
    }


def read_operation(database: Database, trace_id: str, service: str, thinned: TimeRange | None = None) -> str:
    """The operation that a service did for a request, as samples have it; "" if that is not known. `thinned`: the time
    range of a request that has lost rows; then the spans of its samples say it. Raises ApiError."""
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    conditions.add(f"service = {conditions.bind(service, 'String')}")
    # Activity may call the service of a span differently than samples do.
    known = f"SELECT span_id FROM activity WHERE {conditions.expressions[0]} AND operation != ''"
    labelled = f"series_id IN (SELECT series_id FROM trace_samples {conditions.where} AND span_id NOT IN ({known}))"
    conditions.add("operation != ''")
    sources = [
        f"SELECT toString(operation) AS named, 1 AS by_span, thread_cpu_ns AS cpu FROM activity {conditions.where}",
        f"SELECT toString(operation), 1, 0 FROM spans {conditions.where}",  # where there is no activity
        f"SELECT label, 0, 0 FROM ({SERIES_SPAN_NAMES}) WHERE {labelled}",
    ]
    if thinned is not None:  # for others, it would read all spans of the service in these hours
        add_times(conditions, [span_hours(thinned)], "start_time")
        sources.append(f"SELECT toString(operation), 1, 0 FROM span_operations {conditions.where}")
    answer = database.table(
        f"SELECT named AS name FROM ({' UNION ALL '.join(sources)})"
        " GROUP BY named ORDER BY max(by_span) DESC, sum(cpu) DESC, name LIMIT 1",
        conditions.parameters,
    )
    return next(iter(texts(answer["name"])), "")


def trace_conditions(trace_id: str, profile_type: str) -> Conditions:
    """Conditions on `trace_samples`."""
    conditions = Conditions()
    conditions.add(f"trace_id = {conditions.bind_trace_id(trace_id)}")
    conditions.add(f"profile_type = {conditions.bind(profile_type, 'String')}")
    return conditions


def _read_sums(
    database: Database, trace_id: str, profile_type: str, columns: Sequence[str]
) -> dict[str, tuple[list[CpuSums], int]]:
    """For each of the columns: the sums by it, heaviest first, and how many there are; of all services, and of the
    heaviest spans and hosts.

    CPU is thread CPU in the services that have some, and sampled CPU in the others.
    """
    samples = trace_conditions(trace_id, profile_type)
    activity = Conditions(parameters=samples.parameters)
    activity.add(f"trace_id = {activity.bind_trace_id(trace_id)}")
    answer = database.table(
        _CPU_SQL.format(
            keys=", ".join(f"('{column}', {_KEYS[column]})" for column in columns),
            sampled=SAMPLED_COLUMNS,
            has_clock=_HAS_CLOCK.format(activity=activity.where) if is_cpu(profile_type) else "0",
            samples=samples.where,
            activity=activity.where,
            most=_MAX_ROWS,
        ),
        samples.parameters,
    )
    found: dict[str, tuple[list[CpuSums], int]] = {column: ([], 0) for column in columns}
    numbers = (answer[name].to_pylist() for name in ("cpu", "thread_cpu", "first", "last", "keys"))
    names = (texts(answer[name]) for name in ("column", "key", "service"))
    for column, key, service, sampled, cpu, thread_cpu, first, last, count in zip(
        *names, sampled_rows(answer), *numbers, strict=True
    ):
        rows, _ = found[column]
        rows.append(CpuSums(key, service, cpu, thread_cpu, sampled, first, last))
        found[column] = rows, count
    return found


def _spans(cpu: TraceCpu) -> list[dict[str, Any]]:
    """Spans that were reported or used CPU, heaviest first. CPU of the trace outside of any span has span ID ""."""
    used = {span.key: span for span in cpu.spans}
    rows = []
    for span_id in dict.fromkeys([*used, *cpu.reported.spans]):
        sums = used.get(span_id, CpuSums(span_id, "", 0, 0, Sampled(), 0, 0))
        row: dict[str, Any] = {
            "span_id": known_span_id(span_id),
            "parent_span_id": "",
            "name": "",
            "status": "",
            "service": sums.service,
        }
        if (span := cpu.reported.spans.get(span_id)) is not None:
            row |= vars(span) | {"parent_span_id": known_span_id(span.parent_span_id)}
        rows.append(row | sums.as_json(cpu.period, cpu.profile_type))
    return rows


def known_span_id(span_id: str) -> str:
    """A span ID in hex; "" if it is that of no span."""
    return "" if span_id == _NO_SPAN else span_id
