"""Which labels there are, and which values they have."""

from api.queries.conditions import Conditions, add_series_matchers, add_time
from api.queries.database import Database, texts
from api.queries.selection import TimeRange
from api.queries.selector import Matcher
from icestream.rollups import HOUR_S


def series_conditions(matchers: tuple[Matcher, ...], time_range: TimeRange | None) -> Conditions:
    """Conditions on `series`: matching ones, and those with samples in the hours of the time range."""
    conditions = Conditions()
    add_series_matchers(conditions, matchers)
    if time_range is not None:
        seen = Conditions(parameters=conditions.parameters)
        hour_ns = HOUR_S * 10**9
        add_time(seen, time_range.start_unix_nano // hour_ns * hour_ns, time_range.end_unix_nano, "start_time")
        conditions.add(f"series_id IN (SELECT series_id FROM series_seen {seen.where})")
    return conditions


def read_label_names(database: Database, conditions: Conditions, limit: int) -> list[str]:
    """Names of labels of series, in order. Raises ApiError."""
    answer = database.table(
        f"SELECT DISTINCT toString(arrayJoin(mapKeys(labels))) AS name FROM series {conditions.where}"
        f" ORDER BY name LIMIT {int(limit)}",
        conditions.parameters,
    )
    return texts(answer["name"])


def read_label_values(database: Database, name: str, conditions: Conditions, contains: str, limit: int) -> list[str]:
    """Values of a label of series, in order, without the empty one. Adds to `conditions`. Raises ApiError."""
    value = f"toString(labels[{conditions.bind(name, 'String')}])"
    conditions.add(f"{value} != ''")
    if contains:
        conditions.add(f"positionCaseInsensitiveUTF8({value}, {conditions.bind(contains, 'String')}) > 0")
    answer = database.table(
        f"SELECT DISTINCT {value} AS value FROM series {conditions.where} ORDER BY value LIMIT {int(limit)}",
        conditions.parameters,
    )
    return texts(answer["value"])
