"""Samples over time, summed up by labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.array_types import Values
from api.errors import ApiError, too_large
from api.queries.database import Database
from api.queries.rollups import make_plan
from api.queries.selection.conditions import Conditions
from api.queries.selection.sample_operations import OPERATION, with_operations
from api.queries.selection.sample_spans import check_groups, with_span_names
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.gauges import total_of
from api.queries.stacks.whole_sums import check_size
from icestream.clickhouse.rollups import DAYS, GAUGE_DAYS, GAUGE_HOURS, HOURS, MINUTES, Level
from icestream.clickhouse.span_operations import OPERATION_OF_SAMPLE, SPAN_NAME

_MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Timeline:
    """g groups of samples over t steps, heaviest first."""

    times_unix_milli: npt.NDArray[np.int64]  # (t,), the start of each step
    labels: list[tuple[str, ...]]  # one tuple for each group: its values of the labels asked for
    values: Values  # (g, t)
    counts: Values  # (g, t)
    rollups: list[dict[str, Any]]  # what was read from them, for people


def read_timeline(database: Database, selection: Selection, step_ms: int, sum_by: tuple[str, ...]) -> Timeline:
    """Sums of the samples in each step; of gauges, sums of the averages of all series. Raises ApiError.

    Steps are counted from the start of the time range, rounded down so that rollups fit into steps (see `_levels`).
    Where samples may be gone, the sum of a minute, hour or day is in the step in which it starts, if none fits.
    """
    by_service = selection.by_service and set(sum_by) <= {"service"} and not selection.is_gauge
    check_groups(sum_by)
    sums_by_request = not {OPERATION, SPAN_NAME}.isdisjoint(sum_by)
    if sums_by_request:
        selection.check_operations()
    tables = {} if selection.by_request or sums_by_request else _tables(selection, by_service)
    levels = _levels(tables, selection.time_range, step_ms)
    unit_ms = max((_UNIT_S[level.unit] * 1000 for level in levels), default=1)
    start_unix_milli = selection.time_range.start_unix_nano // 10**6 // unit_ms * unit_ms
    end_unix_milli = -(-selection.time_range.end_unix_nano // 10**6)
    times = start_unix_milli + step_ms * np.arange(-(-(end_unix_milli - start_unix_milli) // step_ms))
    plan = make_plan(database, selection.time_range, levels, [each for each in tables if each not in levels])
    conditions = Conditions()
    sources = [
        (
            tables[part.level],
            "toUnixTimestamp(start_time) * 1000",
            "sum(profiles)",
            part.conditions(selection, conditions.parameters),
        )
        for part in plan.parts
    ]
    if plan.samples:
        of_samples = selection.alternatives(plan.samples, conditions.parameters, whole_days=False)
        asked = selection.of_any_request(plan.samples, conditions.parameters)
        table = with_operations(asked, plan.samples, selection.matchers) if OPERATION in sum_by else "samples"
        table = with_span_names(table, asked, plan.samples) if SPAN_NAME in sum_by else table
        sources += [(table, "toUnixTimestamp64Milli(time)", "uniqExact(time)", each) for each in of_samples]
    first, length = conditions.bind(start_unix_milli, "Int64"), conditions.bind(step_ms, "Int64")
    last = conditions.bind(len(times) - 1, "Int64")
    key = "toString(service)" if by_service else "series_id"
    operation = OPERATION_OF_SAMPLE if OPERATION in sum_by else "''"
    span_name = "name" if SPAN_NAME in sum_by else "''"
    rows = " UNION ALL ".join(
        f"SELECT {key} AS of, {operation} AS op, {span_name} AS span,"
        f" least(greatest(intDiv({time} - {first}, {length}), 0), {last}) AS step, sum(value) AS v, sum(count) AS c"
        f"{f', {profiles} AS n' if selection.is_gauge else ''} FROM {table} {each.where} GROUP BY of, op, span, step"
        for table, time, profiles, each in sources
    )
    if selection.is_gauge:
        rows = _AVERAGES.format(rows=rows)
    names = conditions.bind(list(sum_by), "Array(String)")
    total = total_of(selection, "v")
    sql = (_BY_SERVICE if by_service else _BY_SERIES).format(names=names, rows=rows, total=total)
    answer = database.table(sql, conditions.parameters)
    if len(answer) > _MAX_CELLS:
        raise _too_many_groups()
    check_size(answer)
    return _timeline(times, answer, plan.as_json(), always_one=not sum_by)


_BY_SERVICE = f"""
SELECT arrayMap(name -> of, {{names}}) AS labels, toUInt32(step) AS step, {{total}} AS value,
    sum(toFloat64(v)) AS size, sum(c) AS count
FROM ({{rows}}) GROUP BY labels, step LIMIT {_MAX_CELLS + 1}"""
# A series that is not stored (yet) has no labels.
_BY_SERIES = f"""
SELECT arrayMap((asked, label) -> multiIf(asked = '{OPERATION}', op, asked = '{SPAN_NAME}' AND span != '', span, label),
        {{names}},
        if(empty(labels_of.labels), arrayMap(name -> '', {{names}}), labels_of.labels)) AS labels,
    toUInt32(step) AS step, {{total}} AS value, sum(toFloat64(v)) AS size, sum(c) AS count
FROM ({{rows}}) AS sums
LEFT JOIN (SELECT series_id, any(arrayMap(name -> toString(labels[name]), {{names}})) AS labels FROM series
    GROUP BY series_id) AS labels_of ON sums.of = labels_of.series_id
GROUP BY labels, step LIMIT {_MAX_CELLS + 1}"""
# The average of each series, also where several parts have its profiles.
_AVERAGES = """
SELECT of, op, span, step, sum(parts.v) / sum(parts.n) AS v, sum(parts.c) AS c
FROM ({rows}) AS parts GROUP BY of, op, span, step"""
_OF_SERVICES = {MINUTES: "service_minutes", HOURS: "series_hours", DAYS: "service_stack_days"}
_OF_SERIES = {HOURS: "series_hours", DAYS: "series_stack_days"}
_OF_GAUGES = {GAUGE_DAYS: "gauge_days", GAUGE_HOURS: "gauge_hours"}
"""Levels, the best one first, and their tables."""
_UNIT_S = {"minute": 60, "hour": 3600, "day": 86_400}
_UNITS = 24


def _tables(selection: Selection, by_service: bool) -> dict[Level, str]:
    if selection.is_gauge:
        return _OF_GAUGES
    return _OF_SERVICES if by_service else _OF_SERIES


def _levels(tables: Iterable[Level], time_range: TimeRange, step_ms: int) -> list[Level]:
    """The levels whose minutes, hours or days fit into steps, if the time range has at least _UNITS of them."""
    length_ns = time_range.end_unix_nano - time_range.start_unix_nano
    return [
        level
        for level in tables
        if step_ms % (_UNIT_S[level.unit] * 1000) == 0 and length_ns >= _UNITS * _UNIT_S[level.unit] * 10**9
    ]


def _timeline(
    times: npt.NDArray[np.int64], answer: pa.Table, rollups: list[dict[str, Any]], always_one: bool
) -> Timeline:
    """`always_one`: there is a group, without labels, even if there are no samples."""
    rows: dict[tuple[str, ...], int] = {}
    row_of_cell = [
        rows.setdefault(tuple(label.decode(errors="replace") for label in labels), len(rows))
        for labels in answer["labels"].to_pylist()
    ]
    labels = list(rows) or ([()] if always_one else [])
    if len(labels) * len(times) > 5 * _MAX_CELLS:
        raise _too_many_groups()
    values, counts = np.zeros((2, len(labels), len(times)), np.int64)
    cells = (np.array(row_of_cell, np.intp), answer["step"].to_numpy())
    np.add.at(values, cells, answer["value"].to_numpy())
    np.add.at(counts, cells, answer["count"].to_numpy())
    order = np.argsort(-values.sum(axis=1), kind="stable")
    return Timeline(times, [labels[i] for i in order], values[order], counts[order], rollups)


def _too_many_groups() -> ApiError:
    return too_large("too many groups over too many steps", "sum by fewer labels, or give a larger step")
