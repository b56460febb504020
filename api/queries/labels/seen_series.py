"""Which series had samples of which profile types, by the hour: what label browsers ask."""

from api.queries.database import Database, texts
from api.queries.labels.known_series import KnownSeries, SeenSeries, labels_of, seen_conditions
from api.queries.selection.conditions import Conditions, add_series_matchers
from api.queries.selection.sample_spans import series_matchers
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange


def read_seen_series(
    known: KnownSeries,
    profile_types: list[str] | None,
    matchers: tuple[Matcher, ...],
    time_range: TimeRange | None,
    names: tuple[str, ...] | None,
    limit: int,
) -> list[SeenSeries]:
    """Distinct ones in order, at most `limit`; with `names`, only these labels of them. Without a time range, all that
    were ever seen. Raises ApiError."""
    found = known.seen(profile_types, matchers, time_range)
    if found is None:
        return _read(known.database, seen_conditions(profile_types, time_range), matchers, names, limit)
    distinct = {
        (each.profile_type, tuple(sorted(label for label in each.labels.items() if names is None or label[0] in names)))
        for each in found
    }
    ordered = sorted(distinct, key=_in_order)
    return [SeenSeries(profile_type, dict(labels)) for profile_type, labels in ordered[:limit]]


def _in_order(series: tuple[str, tuple[tuple[str, str], ...]]) -> tuple[str, list[str], list[str]]:
    """By the profile type, then the names of labels, then their values, as ClickHouse has them in order."""
    profile_type, labels = series
    return profile_type, [name for name, _ in labels], [value for _, value in labels]


def _read(
    database: Database, seen: Conditions, matchers: tuple[Matcher, ...], names: tuple[str, ...] | None, limit: int
) -> list[SeenSeries]:
    """`seen`: conditions on `series_seen`."""
    matching = Conditions(parameters=seen.parameters)
    add_series_matchers(matching, series_matchers(matchers))
    is_kept = "value != ''"
    if names is not None:
        is_kept += f" AND has({seen.bind(list(names), 'Array(String)')}, name)"
    labels = f"mapFilter((name, value) -> {is_kept}, mapSort(labels))"
    answer = database.table(
        "SELECT DISTINCT toString(seen.profile_type) AS profile_type, mapKeys(of.kept) AS names,"
        " mapValues(of.kept) AS label_values"
        f" FROM (SELECT DISTINCT profile_type, series_id FROM series_seen {seen.where}) AS seen"
        f" INNER JOIN (SELECT series_id, any(CAST({labels}, 'Map(String, String)')) AS kept FROM series"
        f" {matching.where} GROUP BY series_id) AS of ON seen.series_id = of.series_id"
        f" ORDER BY profile_type, names, label_values LIMIT {int(limit)}",
        seen.parameters,
    )
    return list(map(SeenSeries, texts(answer["profile_type"]), labels_of(answer)))


def read_seen_hours(database: Database) -> tuple[int, int] | None:
    """Start of the first and of the last hour with samples, in Unix seconds, or None. Raises ApiError."""
    answer = database.table(
        "SELECT toUnixTimestamp(min(start_time)) AS first, toUnixTimestamp(max(start_time)) AS last, count() AS rows"
        " FROM series_seen"
    )
    if not answer["rows"][0].as_py():
        return None
    return int(answer["first"][0].as_py()), int(answer["last"][0].as_py())
