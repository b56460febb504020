"""Samples over time, summed up by labels."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.array_types import Values
from api.errors import ApiError, too_large
from api.queries.database import Database
from api.queries.selection import Selection

_MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Timeline:
    """g groups of samples over t steps, heaviest first."""

    times_unix_milli: npt.NDArray[np.int64]  # (t,), the start of each step
    labels: list[tuple[str, ...]]  # one tuple for each group: its values of the labels asked for
    values: Values  # (g, t)
    counts: Values  # (g, t)


def read_timeline(database: Database, selection: Selection, step_ms: int, sum_by: tuple[str, ...]) -> Timeline:
    """Sums of the samples in each step, counted from the start of the time range. Raises ApiError."""
    start_unix_milli = selection.time_range.start_unix_nano // 10**6
    end_unix_milli = -(-selection.time_range.end_unix_nano // 10**6)
    times = start_unix_milli + step_ms * np.arange(-(-(end_unix_milli - start_unix_milli) // step_ms))
    conditions = selection.conditions()
    start, step_length = conditions.bind(start_unix_milli, "Int64"), conditions.bind(step_ms, "Int64")
    step = f"intDiv(toUnixTimestamp64Milli(time) - {start}, {step_length})"
    names = conditions.bind(list(sum_by), "Array(String)")
    # A series that is not stored (yet) has no labels.
    answer = database.table(
        f"SELECT if(empty(labels_of.labels), arrayMap(name -> '', {names}), labels_of.labels) AS labels, step,"
        " sum(v) AS value, sum(c) AS count"
        f" FROM (SELECT series_id, toUInt32({step}) AS step, sum(value) AS v, sum(count) AS c"
        f" FROM samples {conditions.where} GROUP BY series_id, step) AS sums"
        f" LEFT JOIN (SELECT series_id, any(arrayMap(name -> toString(labels[name]), {names})) AS labels"
        " FROM series GROUP BY series_id) AS labels_of ON sums.series_id = labels_of.series_id"
        f" GROUP BY labels, step LIMIT {_MAX_CELLS + 1}",
        conditions.parameters,
    )
    if len(answer) > _MAX_CELLS:
        raise _too_many_groups()
    return _timeline(times, answer, ("",) * len(sum_by))


def _timeline(times: npt.NDArray[np.int64], answer: pa.Table, no_labels: tuple[str, ...]) -> Timeline:
    rows: dict[tuple[str, ...], int] = {}
    row_of_cell = [
        rows.setdefault(tuple(label.decode(errors="replace") for label in labels), len(rows))
        for labels in answer["labels"].to_pylist()
    ]
    labels = list(rows) or [no_labels]
    if len(labels) * len(times) > 5 * _MAX_CELLS:
        raise _too_many_groups()
    values, counts = np.zeros((2, len(labels), len(times)), np.int64)
    cells = (np.array(row_of_cell, np.intp), answer["step"].to_numpy())
    np.add.at(values, cells, answer["value"].to_numpy())
    np.add.at(counts, cells, answer["count"].to_numpy())
    order = np.argsort(-values.sum(axis=1), kind="stable")
    return Timeline(times, [labels[i] for i in order], values[order], counts[order])


def _too_many_groups() -> ApiError:
    return too_large("too many groups over too many steps", "sum by fewer labels, or give a larger step")
