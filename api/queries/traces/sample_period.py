"""How much CPU one sample stands for: needed where a request has no sample that would say it."""

from collections.abc import Sequence

from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions, add_time
from api.queries.selection.time_range import TimeRange

_SAMPLES = 10_000
"""So many samples of each service are read: ClickHouse reads 8,192 rows at a time anyway. A hundred would come from
one or two series, as a series' samples lie together, and hosts have different periods."""
_SERVICES = 50
"""For each query."""


def read_periods(
    database: Database, profile_type: str, services: Sequence[str], time_range: TimeRange
) -> dict[str, float]:
    """The longest period of some samples of each service in the range; services without samples are left out.

    Reads the first samples that it finds, so the length of the range costs little. Raises ApiError.
    """
    periods: dict[str, float] = {}
    for first in range(0, len(services), _SERVICES):
        conditions = Conditions()
        parts = [
            _select_some(conditions, profile_type, service, time_range)
            for service in services[first : first + _SERVICES]
        ]
        answer = database.table(
            f"SELECT service, max(period) AS period FROM ({' UNION ALL '.join(parts)}) GROUP BY service",
            conditions.parameters,
        )
        periods |= dict(zip(texts(answer["service"]), answer["period"].to_pylist(), strict=True))
    return periods


def _select_some(conditions: Conditions, profile_type: str, service: str, time_range: TimeRange) -> str:
    one = Conditions(parameters=conditions.parameters)
    one.add(f"profile_type = {one.bind(profile_type, 'String')}")
    one.add(f"service = {one.bind(service, 'String')}")
    add_time(one, time_range)
    one.add("count > 0 AND value > 0")
    return f"SELECT toString(service) AS service, value / count AS period FROM samples {one.where} LIMIT {_SAMPLES}"
