"""Annotations of a time range: what was said of a moment, and the first samples of new versions of services."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.queries.database import Database, texts
from api.queries.labels.known_series import labels_of
from api.queries.selection.conditions import Conditions, add_series_matchers, add_time, add_times, add_value_matcher
from api.queries.selection.sample_spans import series_matchers
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from icestream.times import HOUR_NS, format_unix_nano

MOST = 1_000
"""Notes of an answer, and deployments: the latest ones."""
_MS = 10**6
_VERSIONS = ("version", "service_version")
"""Labels with the version of a service; the first that it has counts."""


@dataclass(frozen=True)
class Annotation:
    """`kind`: note or deployment. `labels`: of what it is about."""

    kind: str
    unix_milli: int
    text: str
    labels: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        time = format_unix_nano(self.unix_milli * _MS)
        return {"kind": self.kind, "time": time, "text": self.text, "labels": self.labels}


def insert_note(database: Database, note: Annotation) -> None:
    """Raises ApiError."""
    time = datetime.fromtimestamp(note.unix_milli / 1000, UTC)
    database.insert("annotations", {"time": [time], "text": [note.text], "labels": [note.labels]})


def read_notes(database: Database, selection: Selection) -> list[Annotation]:
    """The notes that a selector does not exclude: a label that a note does not have may have any value."""
    conditions = Conditions()
    add_time(conditions, selection.time_range)
    for matcher in selection.matchers:
        name = conditions.bind(matcher.label, "String")
        of_label = Conditions(parameters=conditions.parameters)
        add_value_matcher(of_label, f"labels[{name}]", matcher)
        conditions.add(f"(NOT mapContains(labels, {name}) OR {' AND '.join(of_label.expressions)})")
    answer = database.table(
        "SELECT toUnixTimestamp64Milli(time) AS unix_milli, text, mapKeys(labels) AS names,"
        f" mapValues(labels) AS label_values FROM annotations {conditions.where}"
        f" ORDER BY time DESC, text LIMIT {MOST}",
        conditions.parameters,
    )
    columns = answer["unix_milli"].to_pylist(), texts(answer["text"]), labels_of(answer)
    return [Annotation("note", *row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class _Version:
    service: str
    version: str
    first_hour_s: int
    series: list[int]


def read_deployments(database: Database, selection: Selection) -> list[Annotation]:
    """The first samples of versions in the time range, of services that had samples of another version before.

    Versions are those of all series that match but for their version."""
    by_service: dict[str, list[_Version]] = defaultdict(list)
    for version in _read_versions(database, selection):
        by_service[version.service].append(version)
    start_s, end_s = (ns // 10**9 for ns in (selection.time_range.start_unix_nano, selection.time_range.end_unix_nano))
    candidates = [
        version
        for versions in by_service.values()
        if len(versions) > 1
        for version in versions
        if version.version and start_s - 3600 < version.first_hour_s < end_s
    ]
    candidates = sorted(candidates, key=lambda each: -each.first_hour_s)[:MOST]
    if not candidates:
        return []
    firsts = _read_first_samples(database, selection, by_service, candidates)
    found = []
    for each in candidates:
        first = firsts[each.service, each.version]
        others = [firsts.get((other.service, other.version), other.first_hour_s * 1000)
                  for other in by_service[each.service] if other is not each]  # fmt: skip
        is_inside = selection.time_range.start_unix_nano <= first * _MS < selection.time_range.end_unix_nano
        if min(others) < first and is_inside:
            labels = {"service": each.service, "version": each.version}
            found.append(Annotation("deployment", first, f"first samples of {each.version}", labels))
    return found


def _read_versions(database: Database, selection: Selection) -> list[_Version]:
    of_series, seen = Conditions(), Conditions()
    seen.parameters = of_series.parameters
    others = [each for each in series_matchers(selection.matchers) if each.label not in _VERSIONS]
    add_series_matchers(of_series, others)
    seen.add(f"profile_type = {seen.bind(selection.profile_type, 'String')}")
    version = f"if(labels['{_VERSIONS[0]}'] != '', labels['{_VERSIONS[0]}'], labels['{_VERSIONS[1]}'])"
    answer = database.table(
        "SELECT named.service AS service, named.version AS version, toUnixTimestamp(min(seen.first)) AS first,"
        " groupArray(100)(series_id) AS series"
        f" FROM (SELECT series_id, min(start_time) AS first FROM series_seen {seen.where} GROUP BY series_id) AS seen"
        f" INNER JOIN (SELECT series_id, any(toString(labels['service'])) AS service,"
        f" any(toString({version})) AS version FROM series {of_series.where} GROUP BY series_id) AS named"
        " USING (series_id) GROUP BY service, version",
        seen.parameters,
    )
    columns = texts(answer["service"]), texts(answer["version"]), answer["first"].to_pylist()
    return [_Version(*row) for row in zip(*columns, answer["series"].to_pylist(), strict=True)]


def _read_first_samples(
    database: Database, selection: Selection, by_service: dict[str, list[_Version]], candidates: list[_Version]
) -> dict[tuple[str, str], int]:
    """The first sample in Unix milliseconds, by service and version, of all versions that began in an hour of one of
    the candidates; where samples are no longer kept, the start of the hour."""
    hours = {each.first_hour_s for each in candidates}
    services = sorted({each.service for each in candidates})
    began = [each for name in services for each in by_service[name] if each.first_hour_s in hours]
    conditions = Conditions()
    conditions.add(f"profile_type = {conditions.bind(selection.profile_type, 'String')}")
    conditions.add(f"service IN {conditions.bind(services, 'Array(String)')}")
    add_times(conditions, [TimeRange(hour * 10**9, hour * 10**9 + HOUR_NS) for hour in sorted(hours)])
    series = [series_id for each in began for series_id in each.series]
    conditions.add(f"series_id IN {conditions.bind(series, 'Array(UInt64)')}")
    answer = database.table(
        f"SELECT series_id, toUnixTimestamp64Milli(min(time)) AS first FROM samples {conditions.where}"
        " GROUP BY series_id",
        conditions.parameters,
    )
    of_series = dict(zip(answer["series_id"].to_pylist(), answer["first"].to_pylist(), strict=True))
    return {
        (each.service, each.version): min(
            (of_series[row] for row in each.series if row in of_series), default=each.first_hour_s * 1000
        )
        for each in began
    }
