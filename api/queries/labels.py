"""Which labels there are, and which values they have."""

from api.queries.conditions import Conditions, add_series_matchers, add_time
from api.queries.database import Database, texts
from api.queries.selection import TimeRange
from api.queries.selector import Matcher


def series_conditions(matchers: tuple[Matcher, ...], time_range: TimeRange | None) -> Conditions:
    """Conditions on `series`: matching ones, and those with samples in the time range if there is one."""
    conditions = Conditions()
    add_series_matchers(conditions, matchers)
    if time_range is not None:
        in_time = Conditions(parameters=conditions.parameters)
        add_time(in_time, time_range.start_unix_nano, time_range.end_unix_nano)
        conditions.add(f"series_id IN (SELECT series_id FROM samples {in_time.where})")
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
