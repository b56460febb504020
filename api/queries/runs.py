"""What collectors sent, by the table `batches`: the runs of collectors, and the gaps in their sequences.

A run is one start of a collector. It numbers its windows without gaps, samples and activity each on their own. A window
is placed by the moment at which it was published, which is just after its end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions, add_matchers, add_time
from api.queries.selection.sample_spans import series_matchers
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.messages.raw import GATEWAY
from icestream.topics import DEFAULT_PROFILE_TYPE

_MS = 10**6
_DAY_MS = 86_400 * 1000
NEAR_MS = 3600 * 1000
"""A host is not expected in a time range if it sent nothing in it, nor for this long before and after it."""
SETTLED_MS = 120 * 1000
"""A batch that is older than this is late: twice the time after which a collector sends one even if nothing ran."""
_CLOCK_MS = _DAY_MS  # how far outside batches of a run may lie, because the clock of their host was set
_FEW = 50  # runs whose clocks are looked at: if more have gaps, clocks are not the reason
_ALL_OUTPUTS = 2**32 - 1  # of the column `output`: one row stands for all of the message's outputs
_WHOLE = 0.999  # of a window, as the sum of the shares of its messages
MAX_GAPS = 10_000

_AT = "toUnixTimestamp64Milli(published_time)"
_SHARE = f"1 / (parts * if(output = {_ALL_OUTPUTS}, 1, outputs))"  # which part of a window a row of `batches` is
_FIRST = f"part = 0 AND output IN (0, {_ALL_OUTPUTS})"  # each window has one such row


class RunKey(NamedTuple):
    """What identifies a run."""

    kind: str  # samples or activity
    collector: str
    started_unix_nano: int


@dataclass(frozen=True)
class CollectorRun:
    """A run as far as it lies in or near the range. Losses, slow windows and `windows_in_range` are of the range."""

    kind: str  # samples or activity
    collector: str
    started_unix_nano: int
    host_id: str
    low: int  # sequence numbers
    high: int
    windows: int
    present: float  # windows, as the sum of the shares of their messages
    first_at_unix_milli: int
    last_at_unix_milli: int
    cpu_ns: int  # of all windows
    windows_in_range: int
    lost: int  # CPU samples in the range that the kernel had no room for
    dropped: int  # CPU samples in batches that the collector gave up
    lost_cpu_ns: int
    dropped_cpu_ns: int
    lost_waits: int
    slow_windows: int  # with a lower frequency than configured
    slow_period_ns: int  # the longest period of those
    configured_period_ns: int

    @property
    def window_ms(self) -> float:
        """From one number to the next, on average."""
        spread = self.last_at_unix_milli - self.first_at_unix_milli
        return spread / (self.high - self.low) if self.high > self.low and spread > 0 else 5000.0

    @property
    def may_have_gaps(self) -> bool:
        return self.present < self.high - self.low + _WHOLE

    @property
    def key(self) -> RunKey:
        return RunKey(self.kind, self.collector, self.started_unix_nano)


@dataclass(frozen=True)
class Gap:
    """Windows of a run that are missing before the window `at_unix_milli`, or some of whose messages are missing."""

    run: RunKey
    windows: int
    share: float  # of each of these windows that is missing
    after_unix_milli: int  # the window before them
    at_unix_milli: int  # the window after them


def read_runs(database: Database, time_range: TimeRange, matchers: tuple[Matcher, ...]) -> list[CollectorRun]:
    """The runs in the range or near it, of the hosts with samples that match. Raises ApiError."""
    start_unix_milli, end_unix_milli = time_range.start_unix_nano // _MS, -(-time_range.end_unix_nano // _MS)
    conditions = _published(start_unix_milli - NEAR_MS, end_unix_milli + NEAR_MS)
    add_hosts(conditions, time_range, matchers)
    start, end = conditions.bind(start_unix_milli, "Int64"), conditions.bind(end_unix_milli, "Int64")
    cpu = f"profile_type = {conditions.bind(DEFAULT_PROFILE_TYPE, 'String')}"
    here = f"{_AT} >= {start} AND {_AT} < {end}"
    slow = f"{here} AND {cpu} AND {_FIRST} AND configured_period > 0 AND period > configured_period"
    answer = database.table(
        "SELECT kind, collector, started_unix_nano, any(host_id) AS host,"
        f" min(sequence) AS low, max(sequence) AS high, countIf({_FIRST}) AS windows, sum({_SHARE}) AS present,"
        f" min({_AT}) AS first_at_unix_milli, max({_AT}) AS last_at_unix_milli, sumIf(value, {cpu}) AS cpu_ns,"
        f" countIf({here} AND {_FIRST}) AS windows_in_range, sumIf(lost_samples, {here} AND {cpu}) AS lost,"
        f" sumIf(dropped_samples, {here} AND {cpu}) AS dropped,"
        f" sumIf(toFloat64(lost_samples) * period, {here} AND {cpu}) AS lost_cpu_ns,"
        f" sumIf(toFloat64(dropped_samples) * period, {here} AND {cpu}) AS dropped_cpu_ns,"
        f" sumIf(lost_samples, {here} AND kind = 'samples' AND NOT {cpu}) AS lost_waits,"
        f" countIf({slow}) AS slow_windows, maxIf(period, {slow}) AS slow_period_ns,"
        f" maxIf(configured_period, {slow}) AS configured_period_ns"
        f" FROM batches {conditions.where}"
        " GROUP BY kind, collector, started_unix_nano ORDER BY collector, started_unix_nano, kind",
        conditions.parameters,
    )
    return [CollectorRun(host_id=row.pop("host"), **row) for row in _rows(answer)]


def read_known_from(database: Database, now_unix_milli: int) -> int:
    """Returns the moment, in Unix milliseconds, before which batches may have been dropped by their age; 0: never.
    Raises ApiError."""
    # With several shards, the rows and their age are in a database of their own (sinks/clickhouse/cluster.py).
    answer = database.table(
        "SELECT max(toUInt32OrZero(extract(create_table_query, ' TTL .*toIntervalDay\\\\((\\\\d+)\\\\)'))) AS days,"
        " (SELECT toUnixTimestamp64Milli(min(last_time)) FROM batches) AS oldest_unix_milli,"
        " (SELECT toUnixTimestamp(min(applied)) FROM schema_migrations) AS made_unix_s"
        " FROM system.tables"
        " WHERE name = 'batches' AND database IN (currentDatabase(), concat(currentDatabase(), '_local'))"
    )
    days, oldest_unix_milli, made_unix_s = (
        int(answer[name][0].as_py()) for name in ("days", "oldest_unix_milli", "made_unix_s")
    )
    # Before the age was raised, or taken away, older batches were dropped, unless the oldest is as old as the tables.
    left_from_unix_milli = oldest_unix_milli if oldest_unix_milli > made_unix_s * 1000 + NEAR_MS else 0
    return max(now_unix_milli - days * _DAY_MS if days else 0, left_from_unix_milli)


def read_gaps(
    database: Database, time_range: TimeRange, runs: Iterable[CollectorRun], now_unix_milli: int
) -> list[Gap]:
    """The gaps in the sequences of these runs, near the range, at most MAX_GAPS. Raises ApiError.

    For a few runs, it also finds the batches that lie up to a day outside, so a clock that was set makes no gap.
    """
    start_unix_milli, end_unix_milli = time_range.start_unix_nano // _MS, -(-time_range.end_unix_nano // _MS)
    suspects = [run.key for run in runs if run.may_have_gaps or _begins_late(run, start_unix_milli)]
    if not suspects:
        return []
    around_ms = _CLOCK_MS if len(suspects) <= _FEW else NEAR_MS
    conditions = _published(start_unix_milli - around_ms, end_unix_milli + around_ms)
    ids = conditions.bind(suspects, "Array(Tuple(String, String, UInt64))")
    conditions.add(f"(kind, collector, started_unix_nano) IN {ids}")
    settled = conditions.bind(now_unix_milli - SETTLED_MS, "Int64")
    answer = database.table(
        "SELECT kind, collector, started_unix_nano, sequence, at, present, previous, previous_at FROM"
        " (SELECT *, lagInFrame(sequence) OVER of_run AS previous, lagInFrame(at) OVER of_run AS previous_at"
        f" FROM (SELECT kind, collector, started_unix_nano, sequence, max({_AT}) AS at,"
        f" sum({_SHARE}) AS present FROM batches {conditions.where}"
        " GROUP BY kind, collector, started_unix_nano, sequence)"
        " WINDOW of_run AS (PARTITION BY kind, collector, started_unix_nano ORDER BY sequence"
        " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW))"
        f" WHERE (previous > 0 AND sequence > previous + 1) OR (present < {_WHOLE} AND at < {settled})"
        f" ORDER BY at DESC LIMIT {MAX_GAPS}",
        conditions.parameters,
    )
    return [gap for row in _rows(answer) for gap in _gaps(row)]


def add_hosts(conditions: Conditions, time_range: TimeRange, matchers: tuple[Matcher, ...]) -> None:
    """Adds that `host_id` has samples that match, in the range or near it."""
    if matchers:
        of_samples = Conditions(parameters=conditions.parameters)
        add_matchers(of_samples, series_matchers(matchers))  # hosts miss what they miss of all requests
        add_time(of_samples, near(time_range))
        conditions.add(f"host_id IN (SELECT host_id FROM samples {of_samples.where})")


def near(time_range: TimeRange) -> TimeRange:
    """The time range, and NEAR_MS to each side."""
    more = NEAR_MS * _MS
    return TimeRange(max(time_range.start_unix_nano - more, 0), time_range.end_unix_nano + more)


def _published(from_unix_milli: int, to_unix_milli: int) -> Conditions:
    conditions = Conditions()
    conditions.add("kind IN ('samples', 'activity')")
    # Nobody knows when those who send profiles should send them.
    conditions.add(f"NOT startsWith(collector, {conditions.bind(GATEWAY, 'String')})")
    add_time(conditions, TimeRange(max(from_unix_milli, 0) * _MS, to_unix_milli * _MS), "published_time")
    return conditions


def _begins_late(run: CollectorRun, start_unix_milli: int) -> bool:
    """Whether earlier windows of the run could be missing, or lie before what was read."""
    return run.low > 1 and run.first_at_unix_milli > start_unix_milli - NEAR_MS + SETTLED_MS


def _gaps(row: dict[str, Any]) -> list[Gap]:
    run = RunKey(row["kind"], row["collector"], row["started_unix_nano"])
    gaps = []
    if row["previous"] and (missing := row["sequence"] - row["previous"] - 1):
        gaps.append(Gap(run, missing, 1.0, row["previous_at"], row["at"]))
    if row["present"] < _WHOLE:
        gaps.append(Gap(run, 1, 1 - row["present"], row["at"], row["at"]))
    return gaps


def _rows(answer: pa.Table) -> list[dict[str, Any]]:
    """Rows with texts; sums of floats, which are nanoseconds, become whole numbers."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(answer.column_names, answer.columns, strict=True):
        if pa.types.is_binary(column.type) or pa.types.is_dictionary(column.type):
            columns[name] = texts(column)
        else:
            columns[name] = [int(v) for v in column.to_pylist()] if name.endswith("_cpu_ns") else column.to_pylist()
    return [{name: values[row] for name, values in columns.items()} for row in range(len(answer))]
