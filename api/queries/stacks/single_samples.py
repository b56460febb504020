"""The selected samples one by one, with their times, threads and traces."""

from dataclasses import dataclass

import numpy as np

from api.array_types import Ids, Values
from api.errors import too_large
from api.queries.database import Database, texts
from api.queries.selection.selection import Selection

MAX_SAMPLES = 200_000

_COLUMNS = "series_id, host_id, pid, tid, stack_id, trace_id, span_id, time"


@dataclass(frozen=True)
class SingleSamples:
    """n samples, ordered by series, host, thread, stack and trace; corrections are counted."""

    series_ids: Ids
    host_ids: list[str]
    pids: list[int]
    tids: list[int]
    stack_ids: Ids
    trace_ids: list[bytes]  # 16 bytes; zeros: no trace
    span_ids: list[bytes]  # 8 bytes
    times_unix_milli: list[int]
    values: Values  # above 0
    counts: Values
    labels: dict[int, dict[str, str]]
    """The labels of each series; a series that is not stored (yet) has only its service."""


def read_single_samples(database: Database, selection: Selection) -> SingleSamples:
    """Raises ApiError, also where there are more than MAX_SAMPLES."""
    conditions = selection.conditions()
    answer = database.table(
        f"SELECT {_COLUMNS}, any(service) AS any_service, toUnixTimestamp64Milli(time) AS unix_milli,"
        f" sum(value) AS sum_of_values, sum(toInt64(count)) AS sum_of_counts FROM samples {conditions.where}"
        f" GROUP BY {_COLUMNS} HAVING sum_of_values > 0 ORDER BY {_COLUMNS} LIMIT {MAX_SAMPLES + 1}",
        conditions.parameters,
    )
    if len(answer) > MAX_SAMPLES:
        raise too_large(f"the query selects more than {MAX_SAMPLES} samples")
    series_ids = answer["series_id"].to_numpy()
    services = dict(zip(series_ids.tolist(), texts(answer["any_service"].cast("binary")), strict=True))
    return SingleSamples(
        series_ids=series_ids,
        host_ids=texts(answer["host_id"].cast("binary")),
        pids=answer["pid"].to_pylist(),
        tids=answer["tid"].to_pylist(),
        stack_ids=answer["stack_id"].to_numpy(),
        trace_ids=answer["trace_id"].to_pylist(),
        span_ids=answer["span_id"].to_pylist(),
        times_unix_milli=answer["unix_milli"].to_pylist(),
        values=answer["sum_of_values"].to_numpy().astype(np.int64),
        counts=answer["sum_of_counts"].to_numpy().astype(np.int64),
        labels={series: {"service": service} for series, service in services.items()}
        | _read_labels(database, selection),
    )


def _read_labels(database: Database, selection: Selection) -> dict[int, dict[str, str]]:
    conditions = selection.conditions()
    answer = database.table(
        "SELECT series_id, mapKeys(any(labels)) AS names, mapValues(any(labels)) AS texts FROM series"
        f" WHERE series_id IN (SELECT series_id FROM samples {conditions.where}) GROUP BY series_id",
        conditions.parameters,
    )
    columns = (answer[name].to_pylist() for name in ("series_id", "names", "texts"))
    return {
        series: {_text(name): _text(value) for name, value in zip(names, values, strict=True) if value}
        for series, names, values in zip(*columns, strict=True)
    }


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
