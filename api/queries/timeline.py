"""Samples over time, summed up by labels."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.errors import ApiError, too_large
from api.queries.database import Database
from api.queries.selection import Scope
from api.tree.graph import Values

_MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Timeline:
    """s series over t steps, heaviest first."""

    times_unix_milli: npt.NDArray[np.int64]  # (t,), where each step begins
    labels: list[tuple[str, ...]]  # values of the labels asked for, one tuple a series
    values: Values  # (s, t)
    counts: Values  # (s, t)


def read_timeline(database: Database, scope: Scope, step_ms: int, sum_by: tuple[str, ...]) -> Timeline:
    """Sums of the samples in each step, counted from the start of the range. Raises ApiError."""
    start_ms, end_ms = scope.time.start_unix_nano // 10**6, -(-scope.time.end_unix_nano // 10**6)
    times = start_ms + step_ms * np.arange(-(-(end_ms - start_ms) // step_ms))
    where = scope.where()
    step = f"intDiv(toUnixTimestamp64Milli(time) - {where.bind(start_ms, 'Int64')}, {where.bind(step_ms, 'Int64')})"
    names = where.bind(list(sum_by), "Array(String)")
    # A series that is not in its table (yet) has no labels.
    answer = database.table(
        f"SELECT if(empty(labels_of.labels), arrayMap(name -> '', {names}), labels_of.labels) AS labels, step,"
        " sum(v) AS value, sum(c) AS count"
        f" FROM (SELECT series_id, toUInt32({step}) AS step, sum(value) AS v, sum(count) AS c"
        f" FROM samples {where.sql} GROUP BY series_id, step) AS sums"
        f" LEFT JOIN (SELECT series_id, any(arrayMap(name -> toString(labels[name]), {names})) AS labels"
        " FROM series GROUP BY series_id) AS labels_of ON sums.series_id = labels_of.series_id"
        f" GROUP BY labels, step LIMIT {_MAX_CELLS + 1}",
        where.parameters,
    )
    if len(answer) > _MAX_CELLS:
        raise _too_many()
    return _timeline(times, answer, ("",) * len(sum_by))


def _timeline(times: npt.NDArray[np.int64], answer: pa.Table, no_labels: tuple[str, ...]) -> Timeline:
    rows: dict[tuple[str, ...], int] = {}
    of = [
        rows.setdefault(tuple(label.decode(errors="replace") for label in labels), len(rows))
        for labels in answer["labels"].to_pylist()
    ]
    labels = list(rows) or [no_labels]
    if len(labels) * len(times) > 5 * _MAX_CELLS:
        raise _too_many()
    values, counts = np.zeros((2, len(labels), len(times)), np.int64)
    at = (np.array(of, np.intp), answer["step"].to_numpy())
    np.add.at(values, at, answer["value"].to_numpy())
    np.add.at(counts, at, answer["count"].to_numpy())
    order = np.argsort(-values.sum(axis=1), kind="stable")
    return Timeline(times, [labels[i] for i in order], values[order], counts[order])


def _too_many() -> ApiError:
    return too_large("too many series over too many steps", "sum by fewer labels, or give a larger step")
